// _core._testing: how drafts are chosen.
#include <nanobind/stl/array.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <array>
#include <stdexcept>

#include "bind.hpp"
#include "engine/draft_policy.hpp"
#include "engine/ngram.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace mtlqwen {
namespace {

DrafterKind kind_of(const std::string& name) {
  const std::optional<DrafterKind> kind = drafter_named(name);
  if (!kind) throw std::invalid_argument("no such drafter: " + name);
  return *kind;
}

DecodeShape shape(const std::string& kind, uint32_t n_sequences, uint32_t rows, uint32_t steps) {
  return {.kind = kind_of(kind), .n_sequences = n_sequences, .rows = rows, .steps = steps};
}

std::vector<float> listed(const Chain& chain) { return {chain.begin(), chain.end()}; }

// A candidate is (chain, most).
std::tuple<std::vector<uint32_t>, double, double>
choose(const std::vector<std::pair<std::vector<float>, uint32_t>>& listed,
       const std::vector<double>& seconds) {
  std::vector<WidthCandidate> candidates;
  for (const auto& [chain, most] : listed) {
    candidates.push_back({.most = most});
    std::ranges::copy(chain, candidates.back().chain.begin());
  }
  const WidthPlan plan = choose_widths(candidates, seconds);
  return {plan.widths, plan.tokens, plan.seconds};
}

using NamedChoice = std::pair<std::string, uint32_t>;

// A candidate is (history, match length, most, unsettled).
std::vector<NamedChoice>
choose_drafts(DraftPolicy& policy,
              const std::vector<std::tuple<DraftHistory*, uint32_t, uint32_t, uint32_t>>& listed,
              uint32_t most_rows) {
  std::vector<DraftCandidate> candidates;
  for (const auto& [history, match_length, most, unsettled] : listed) {
    candidates.push_back(
        {.history = history, .match_length = match_length, .most = most, .unsettled = unsettled});
  }
  std::vector<NamedChoice> named;
  for (const DraftChoice& choice : policy.choose(candidates, most_rows)) {
    named.emplace_back(name_of(choice.kind), choice.width);
  }
  return named;
}

std::tuple<std::string, uint32_t, uint32_t, uint32_t>
describe_pass(const std::vector<NamedChoice>& named) {
  std::vector<DraftChoice> choices;
  for (const auto& [kind, width] : named) {
    choices.push_back({.kind = kind_of(kind), .width = width});
  }
  const DecodeShape pass = shape_of(choices);
  return {std::string(name_of(pass.kind)), pass.n_sequences, pass.rows, pass.steps};
}

void init_parts(nb::module_& testing) {
  testing.attr("MOST_WIDTH") = kMostWidth;
  testing.attr("NGRAM_LIMITS") = std::array<uint32_t, 3>{kNgramLeast, kNgramMost, kNgramLooked};
  nb::class_<NgramIndex>(testing, "NgramIndex")
      .def(nb::init<>())
      .def("append",
           [](NgramIndex& index, const std::vector<int32_t>& tokens) { index.append(tokens); })
      .def("propose", &NgramIndex::propose, "most"_a)
      .def_prop_ro("match_length", &NgramIndex::match_length)
      .def_prop_ro("bytes", &NgramIndex::bytes);
  nb::class_<AcceptanceProfile>(testing, "AcceptanceProfile")
      .def(nb::init<float>(), "prior"_a)
      .def("observe", &AcceptanceProfile::observe, "width"_a, "accepted"_a)
      .def("conditionals", &AcceptanceProfile::conditionals);
  nb::class_<Acceptance>(testing, "Acceptance")
      .def(nb::init<>())
      .def("observe", &Acceptance::observe, "profile"_a, "width"_a, "accepted"_a)
      .def("chain", [](const Acceptance& acceptance, const AcceptanceProfile& profile) {
        return listed(acceptance.chain(profile));
      });
  nb::class_<PassCost>(testing, "PassCost")
      .def(nb::init<>())
      .def(
          "observe",
          [](PassCost& cost, const std::string& kind, uint32_t n_sequences, uint32_t rows,
             double seconds,
             uint32_t steps) { cost.observe(shape(kind, n_sequences, rows, steps), seconds); },
          "kind"_a, "n_sequences"_a, "rows"_a, "seconds"_a, "steps"_a = 0)
      .def(
          "estimate",
          [](const PassCost& cost, const std::string& kind, uint32_t n_sequences, uint32_t rows,
             uint32_t steps) { return cost.estimate(shape(kind, n_sequences, rows, steps)); },
          "kind"_a, "n_sequences"_a, "rows"_a, "steps"_a = 0);
}

}  // namespace

void init_draft_testing(nb::module_& testing) {
  init_parts(testing);
  testing.def("choose_widths", &choose, "candidates"_a, "seconds"_a);
  nb::class_<DraftHistory>(testing, "DraftHistory").def(nb::init<>());
  nb::class_<DraftPolicy>(testing, "DraftPolicy")
      .def(
          "__init__",
          [](DraftPolicy* policy, const std::vector<NamedChoice>& drafters) {
            std::vector<DraftOption> options;
            for (const auto& [kind, most] : drafters) {
              options.push_back({.kind = kind_of(kind), .most = most});
            }
            new (policy) DraftPolicy(options);
          },
          "drafters"_a)
      .def("choose", &choose_drafts, "candidates"_a, "most_rows"_a)
      .def(
          "observe_draft",
          [](DraftPolicy& policy, DraftHistory& history, const NamedChoice& choice,
             uint32_t match_length, uint32_t accepted) {
            policy.observe_draft(history, {.kind = kind_of(choice.first), .width = choice.second},
                                 match_length, accepted);
          },
          "history"_a, "choice"_a, "match_length"_a, "accepted"_a)
      .def(
          "observe_pass",
          [](DraftPolicy& policy, const std::string& kind, uint32_t n_sequences, uint32_t rows,
             uint32_t steps, double seconds, uint32_t tokens) {
            policy.observe_pass(shape(kind, n_sequences, rows, steps), seconds, tokens);
          },
          "kind"_a, "n_sequences"_a, "rows"_a, "steps"_a, "seconds"_a, "tokens"_a)
      .def("observe_settling", &DraftPolicy::observe_settling, "rows"_a, "seconds"_a);
  testing.def("describe_pass", &describe_pass, "choices"_a);
}

}  // namespace mtlqwen
