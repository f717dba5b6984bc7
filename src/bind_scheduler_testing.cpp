// _core._testing: the pure functions of the engine's rooms, and faults on order.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <stdexcept>

#include "bind.hpp"
#include "engine/boundaries.hpp"
#include "engine/scheduler.hpp"
#include "gpu/platform.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace mtlqwen {
namespace {

// widths: of decoding sequences' drafts, or none for all.
std::vector<uint32_t> plan(const std::vector<uint32_t>& pending, uint32_t rows,
                           uint32_t prefill_rows, const std::vector<uint32_t>& widths) {
  std::vector<RowWish> wishes;
  for (size_t i = 0; i < pending.size(); ++i) {
    wishes.push_back({.pending = pending[i], .width = widths.empty() ? 0 : widths.at(i)});
  }
  return plan_rows(wishes, rows, prefill_rows);
}

// A waiting sequence is (priority, passed_over).
std::optional<size_t> choose(const std::vector<std::pair<int32_t, uint32_t>>& line) {
  std::vector<Waiting> waiting;
  for (const auto& [priority, passed_over] : line) {
    waiting.push_back({.priority = priority, .passed_over = passed_over});
  }
  return choose_next(waiting);
}

std::vector<uint32_t> boundaries(uint32_t n_tokens, const std::vector<uint32_t>& likely,
                                 uint32_t diverges, uint32_t block_tokens) {
  return choose_boundaries(
      {.n_tokens = n_tokens, .likely = likely, .diverges = diverges, .block_tokens = block_tokens});
}

std::vector<uint32_t> between(const std::vector<uint32_t>& boundaries, uint32_t interval,
                              uint32_t from, uint32_t to, uint32_t most) {
  return boundaries_between(boundaries, interval, from, to, most);
}

bool order_fault(const std::string& kind, uint32_t nth) {
  if (kind == "allocation") return inject_fault(Fault::kAllocation, nth);
  if (kind == "mapping") return inject_fault(Fault::kMapping, nth);
  if (kind == "commit") return inject_fault(Fault::kCommit, nth);
  throw std::invalid_argument("no such fault: " + kind);
}

}  // namespace

void init_scheduler_testing(nb::module_& testing) {
  testing.attr("PASSES_PER_PRIORITY") = kPassesPerPriority;
  testing.def("plan_rows", &plan, "pending"_a, "rows"_a, "prefill_rows"_a,
              "widths"_a = std::vector<uint32_t>());
  testing.def("choose_next", &choose, "line"_a);
  testing.def("choose_boundaries", &boundaries, "n_tokens"_a, "likely"_a, "diverges"_a,
              "block_tokens"_a);
  testing.def("boundaries_between", &between, "boundaries"_a, "interval"_a, "from"_a, "to"_a,
              "most"_a);
  testing.def("inject_fault", &order_fault, "kind"_a, "nth"_a);
}

}  // namespace mtlqwen
