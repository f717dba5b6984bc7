// _core.Engine: argument conversion and the release of the GIL; no logic.
#include <nanobind/stl/function.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <stdexcept>

#include "base/error.hpp"
#include "bind.hpp"
#include "engine/engine.hpp"
#include "model/logit_edits.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace mtlqwen {
namespace {

using PythonProgress = std::optional<std::function<void(const std::string&, uint64_t, uint64_t)>>;

std::optional<DrafterKind> to_spec(const std::string& name) {
  const std::optional<DrafterKind> kind = drafter_named(name);
  if (kind || name == "auto") return kind;
  throw std::invalid_argument(concat("[engine] spec: not a drafter (got '", name,
                                     "', want off, ngram, mtp, dflash or auto)"));
}

void construct(Engine* self, const std::string& model, const std::string& kernels, uint32_t context,
               uint32_t slots, std::optional<uint64_t> memory_budget, uint32_t block_tokens,
               uint32_t checkpoint_interval, std::optional<uint64_t> cache_memory,
               const std::string& cache_dir, uint64_t cache_dir_bytes, float prefill_share,
               uint32_t threads, bool prefetch_weights, bool lock_weights, bool deterministic,
               const std::string& spec, const std::string& drafter, bool draft_noise,
               uint64_t candidate_bytes, const PythonProgress& progress) {
  Progress report;
  if (progress) {
    report = [&](std::string_view stage, uint64_t done, uint64_t total) {
      const nb::gil_scoped_acquire gil;
      (*progress)(std::string(stage), done, total);
    };
  }
  const nb::gil_scoped_release no_gil;
  new (self) Engine({.model = model,
                     .kernels = kernels,
                     .context = context,
                     .slots = slots,
                     .memory_budget = memory_budget,
                     .block_tokens = block_tokens,
                     .checkpoint_interval = checkpoint_interval,
                     .cache_memory = cache_memory,
                     .cache_dir = cache_dir,
                     .cache_dir_bytes = cache_dir_bytes,
                     .prefill_share = prefill_share,
                     .threads = threads,
                     .prefetch_weights = prefetch_weights,
                     .lock_weights = lock_weights,
                     .spec = to_spec(spec),
                     .drafter = drafter,
                     .draft_noise = draft_noise,
                     .candidate_bytes = candidate_bytes,
                     .deterministic = deterministic},
                    report);
}

SequenceId submit(Engine& self, std::vector<int32_t> token_ids, uint32_t max_tokens,
                  float temperature, uint64_t seed, std::vector<int32_t> stop_ids, int32_t priority,
                  std::optional<double> deadline_s, std::vector<uint32_t> checkpoint_at,
                  bool recall, uint32_t sample_index, uint32_t top_k, float top_p, float min_p,
                  float presence_penalty, float frequency_penalty, float repetition_penalty,
                  std::vector<std::pair<int32_t, float>> logit_bias,
                  std::vector<int32_t> allowed_ids, std::vector<std::vector<int32_t>> bad_words,
                  uint32_t min_tokens, std::optional<uint32_t> logprobs,
                  std::optional<uint32_t> prompt_logprobs,
                  std::optional<std::tuple<uint32_t, int32_t, std::vector<int32_t>>> budget,
                  std::optional<std::pair<uint64_t, std::optional<int32_t>>> held_by) {
  std::optional<ThinkingBudget> thinking;
  if (budget) {
    thinking = {.n_tokens = std::get<0>(*budget),
                .end_id = std::get<1>(*budget),
                .closing = std::move(std::get<2>(*budget))};
  }
  std::optional<ConstraintOptions> constraint;
  if (held_by) constraint = {.key = held_by->first, .begins_behind = held_by->second};
  return self.submit(std::move(token_ids), {.sampling = {.temperature = temperature,
                                                         .seed = seed,
                                                         .sample_index = sample_index,
                                                         .top_k = top_k,
                                                         .top_p = top_p,
                                                         .min_p = min_p},
                                            .edits = {.presence = presence_penalty,
                                                      .frequency = frequency_penalty,
                                                      .repetition = repetition_penalty,
                                                      .biases = std::move(logit_bias),
                                                      .bad_words = std::move(bad_words),
                                                      .allowed = std::move(allowed_ids),
                                                      .min_tokens = min_tokens},
                                            .logprobs = logprobs,
                                            .prompt_logprobs = prompt_logprobs,
                                            .thinking = std::move(thinking),
                                            .constraint = constraint,
                                            .max_tokens = max_tokens,
                                            .stop_ids = std::move(stop_ids),
                                            .priority = priority,
                                            .deadline_s = deadline_s,
                                            .checkpoint_at = std::move(checkpoint_at),
                                            .recall = recall});
}

nb::tuple load_checkpoint(Engine& self, const std::string& path) {
  SavedCheckpoint saved;
  {
    const nb::gil_scoped_release no_gil;
    saved = self.load_checkpoint(path);
  }
  return nb::make_tuple(saved.token_ids, saved.note, saved.n_cached);
}

nb::object finish_reason(const Poll& poll) {
  switch (poll.finish) {
  case FinishReason::kStop:
    return nb::str("stop");
  case FinishReason::kLength:
    return nb::str("length");
  case FinishReason::kCancelled:
    return nb::str("cancelled");
  case FinishReason::kDeadline:
    return nb::str("deadline");
  default:
    return nb::none();  // an error is raised by poll() itself
  }
}

std::vector<std::vector<std::pair<int32_t, float>>> likeliest_of(const LogprobLog& log) {
  const auto& [chosen, likeliest] = log;
  std::vector<std::vector<std::pair<int32_t, float>>> result(chosen.size());
  for (size_t i = 0; i < likeliest.size(); ++i) {
    if (likeliest[i].first < 0) continue;  // there are fewer ids than were asked for
    result[i * chosen.size() / likeliest.size()].push_back(likeliest[i]);
  }
  return result;
}

nb::dict memory_map(Engine& self) {
  const MemoryMap map = [&] {
    const nb::gil_scoped_release release;
    return self.memory_map();
  }();
  const auto list_of = [](const std::vector<TreeMark>& marks) {
    nb::list list;
    for (const TreeMark& mark : marks) {
      list.append(nb::make_tuple(mark.parent, mark.n_tokens, mark.uses, mark.tokens));
    }
    return list;
  };
  nb::dict result;
  result["block_tokens"] = map.block_tokens;
  result["n_bundles"] = map.n_bundles;
  result["bundle_bytes"] = map.bundle_bytes;
  result["holders"] = nb::bytes(map.holders.data(), map.holders.size());
  result["blocks"] = list_of(map.blocks);
  result["checkpoints"] = list_of(map.checkpoints);
  return result;
}

nb::dict stats(Engine& self) {
  const Stats stats = self.stats();
  nb::dict result;
  result["device"] = stats.device;
  result["threads"] = stats.threads;
  result["memory_bytes"] = stats.memory_bytes;
  result["budget_bytes"] = stats.budget_bytes;
  result["weights_bytes"] = stats.weights_bytes;
  result["weights_locked_bytes"] = stats.weights_locked_bytes;
  result["weights_copied_bytes"] = stats.weights_copied_bytes;
  result["arena_bytes"] = stats.arena_bytes;
  result["pool_bytes"] = stats.pool_bytes;
  result["kv_bytes"] = stats.kv_bytes;
  result["bank_bytes"] = stats.bank_bytes;
  result["live"] = stats.live;
  result["waiting"] = stats.waiting;
  result["submitted"] = stats.submitted;
  result["preemptions"] = stats.preemptions;
  result["passes"] = stats.passes;
  result["passes_stopped"] = stats.passes_stopped;
  result["passes_failed"] = stats.passes_failed;
  result["prefill_rows"] = stats.prefill_rows;
  result["decode_rows"] = stats.decode_rows;
  result["tokens"] = stats.tokens;
  result["draft_bytes"] = stats.draft_bytes;
  result["draft_passes"] = stats.draft_passes;
  result["drafted_tokens"] = stats.drafted_tokens;
  result["accepted_tokens"] = stats.accepted_tokens;
  result["cache_bytes"] = stats.cache_bytes;
  result["cache_budget_bytes"] = stats.cache_budget_bytes;
  result["cache_checkpoints"] = stats.cache_checkpoints;
  result["cache_hits"] = stats.cache_hits;
  result["cache_misses"] = stats.cache_misses;
  result["cache_published"] = stats.cache_published;
  result["cache_evictions"] = stats.cache_evictions;
  result["cached_tokens"] = stats.cached_tokens;
  result["evicted_tokens"] = stats.evicted_tokens;
  result["uncovered_tokens"] = stats.uncovered_tokens;
  result["disk_hits"] = stats.disk_hits;
  result["disk_written"] = stats.disk_written;
  result["disk_failed"] = stats.disk_failed;
  result["step_s"] = stats.step_s;
  result["gpu_s"] = stats.gpu_s;
  result["outside_s"] = stats.outside_s;
  return result;
}

void bind_poll(nb::module_& module) {
  nb::class_<Poll>(module, "Poll", "What has become of a sequence since the last poll.")
      .def_ro("token_ids", &Poll::token_ids, "New token ids, the stop token included.")
      .def_prop_ro("finish_reason", &finish_reason,
                   nb::sig("def finish_reason(self) -> str | None"),
                   "'stop', 'length', 'cancelled' or 'deadline'; None while it goes on.")
      .def_ro("prompt_tokens", &Poll::n_prompt)
      .def_ro("cached_tokens", &Poll::n_cached, "Of the prompt, taken from the prefix cache.")
      .def_ro("drafter", &Poll::drafter, "Who proposed tokens: off, ngram, mtp or dflash.")
      .def_prop_ro(
          "draft_passes", [](const Poll& self) { return self.drafts.passes; },
          "Passes that verified a draft.")
      .def_prop_ro("drafted_tokens", [](const Poll& self) { return self.drafts.drafted; })
      .def_prop_ro(
          "accepted_tokens", [](const Poll& self) { return self.drafts.accepted; },
          "Of those drafted.")
      .def_ro("completion_tokens", &Poll::n_completion)
      .def_prop_ro(
          "logprobs", [](const Poll& self) { return self.logprobs.chosen; },
          "Logarithms of probability of the new tokens, where they were asked for.")
      .def_prop_ro(
          "top_logprobs", [](const Poll& self) { return likeliest_of(self.logprobs); },
          nb::sig("def top_logprobs(self) -> list[list[tuple[int, float]]]"),
          "The likeliest ids in the place of each, the first first.")
      .def_prop_ro(
          "prompt_logprobs", [](const Poll& self) { return self.prompt_logprobs.chosen; },
          "The same of the prompt's tokens but the first: of all of them, or none.")
      .def_prop_ro(
          "top_prompt_logprobs",
          [](const Poll& self) { return likeliest_of(self.prompt_logprobs); },
          nb::sig("def top_prompt_logprobs(self) -> list[list[tuple[int, float]]]"))
      .def_ro("ttft_s", &Poll::ttft_s, "Seconds from submit to the first token; 0 before it.")
      .def_ro("prefill_s", &Poll::prefill_s, "Seconds from getting a slot to the first token.")
      .def_ro("decode_s", &Poll::decode_s, "Seconds from the first token to the last.");
}

}  // namespace

void init_engine(nb::module_& module) {
  bind_poll(module);
  nb::class_<Engine>(module, "Engine", "Model, memory and sequences. All methods are thread safe.")
      .def("__init__", &construct, "model"_a, nb::kw_only(), "kernels"_a, "context"_a = 0,
           "slots"_a = 8, "memory_budget"_a = nb::none(), "block_tokens"_a = 128,
           "checkpoint_interval"_a = 512, "cache_memory"_a = nb::none(), "cache_dir"_a = "",
           "cache_dir_bytes"_a = 10ULL << 30, "prefill_share"_a = 1.0F, "threads"_a = 0,
           "prefetch_weights"_a = true, "lock_weights"_a = false, "deterministic"_a = false,
           "spec"_a = "off", "drafter"_a = "", "draft_noise"_a = false, "candidate_bytes"_a = 0,
           "progress"_a = nb::none(),
           "Load a .gguf file or a directory with config.json and safetensors. progress(stage, "
           "done, total).")
      .def("submit", &submit, "token_ids"_a, nb::kw_only(), "max_tokens"_a, "temperature"_a,
           "seed"_a, "stop_ids"_a, "priority"_a = 0, "deadline_s"_a = nb::none(),
           "checkpoint_at"_a = std::vector<uint32_t>(), "recall"_a = true, "sample_index"_a = 0,
           "top_k"_a = 0, "top_p"_a = 1.0F, "min_p"_a = 0.0F, "presence_penalty"_a = 0.0F,
           "frequency_penalty"_a = 0.0F, "repetition_penalty"_a = 1.0F,
           "logit_bias"_a = std::vector<std::pair<int32_t, float>>(),
           "allowed_ids"_a = std::vector<int32_t>(),
           "bad_words"_a = std::vector<std::vector<int32_t>>(), "min_tokens"_a = 0,
           "logprobs"_a = nb::none(), "prompt_logprobs"_a = nb::none(),
           "thinking_budget"_a = nb::none(), "constraint"_a = nb::none(),
           "Queue a request and return its sequence id. constraint: (key, token id or None): masks "
           "hold the text, from the first token on or behind that one. Raises ValueError or "
           "CapacityError.")
      .def(
          "set_mask_fn",
          [](Engine& self, nb::callable function) { self.set_mask_fn(to_fill_masks(function)); },
          "function"_a,
          nb::sig("def set_mask_fn(self, function: Callable[..., list[Exception | None]]) -> None"),
          "Fill masks by function(items, masks), called inside step; once. items: of each text "
          "(key, "
          "tokens told before, tokens since, drafted tokens, first row); masks: uint32 (rows, "
          "mask_words), not to be kept. Returns of each item None, or why it ends. Raises: the "
          "step "
          "raises it, the next one repeats the pass.")
      .def("step", &Engine::step, nb::call_guard<nb::gil_scoped_release>(),
           "Run one pass; False when there is nothing to do. The second of two such steps in a row "
           "gives memory back to the system. One thread at a time.")
      .def("news", &Engine::news, "The sequences that poll has something for.")
      .def("poll", &Engine::poll, "sequence"_a,
           "Tokens since the last poll. Raises the sequence's error once it failed.")
      .def("cancel", &Engine::cancel, "sequence"_a, "Stop a sequence, within the running pass.")
      .def("release", &Engine::release, "sequence"_a,
           "Forget a sequence; a live one is cancelled first.")
      .def("close", &Engine::close, nb::call_guard<nb::gil_scoped_release>(),
           "Cancel everything and free all memory.")
      .def("check_integrity", &Engine::check_integrity, nb::call_guard<nb::gil_scoped_release>(),
           "Raise RuntimeError where bundles, banks, slots and sequences contradict each other. "
           "Between steps.")
      .def("stats", &stats, nb::sig("def stats(self) -> dict[str, int | float | str]"),
           "Counters, bytes and seconds.")
      .def("memory_map", &memory_map, nb::sig("def memory_map(self) -> dict[str, Any]"),
           "Who holds each bundle (holders: 1 sequences, 2 checkpoints, 4 states), and the prefix "
           "tree: (block it stands behind or -1, tokens up to it, uses, first token ids).")
      .def(
          "save_checkpoint", &Engine::save_checkpoint, nb::call_guard<nb::gil_scoped_release>(),
          "path"_a, "token_ids"_a, "note"_a, "with_state"_a,
          "Write token ids, a note and the state of their deepest checkpoint to a file; return the "
          "tokens that the state stands after.")
      .def("load_checkpoint", &load_checkpoint, "path"_a,
           nb::sig("def load_checkpoint(self, path: str) -> tuple[list[int], str, int]"),
           "Read such a file into the prefix cache: token ids, note, tokens that are cached now. "
           "Raises FormatError, ModelError.")
      .def("start_trace", &Engine::start_trace, "path"_a,
           "Write a trace of the steps to come; one at a time.")
      .def("stop_trace", &Engine::stop_trace, nb::call_guard<nb::gil_scoped_release>(),
           "Complete the trace; False where it could not be written whole.")
      .def_prop_ro("drafter", &Engine::drafter, "Who proposes tokens: off, ngram, mtp or dflash.")
      .def_prop_ro("context", &Engine::context, "Tokens that one sequence can hold.")
      .def_prop_ro("slots", &Engine::slots, "Sequences that run at once.")
      .def_prop_ro(
          "vocab_size", [](const Engine& self) { return self.vocab(); }, "Rows of the embedding.")
      .def_prop_ro(
          "mask_words", [](const Engine& self) { return mask_words(self.n_valid_tokens()); },
          "Words of 32 ids that a mask has.")
      .def_prop_ro("eos_ids", &Engine::eos_ids, "End-of-sequence ids that the model file names.");
}

}  // namespace mtlqwen
