#include "engine/engine.hpp"

#include <unistd.h>

#include <algorithm>
#include <limits>
#include <stdexcept>
#include <utility>

#include "base/error.hpp"
#include "engine/archive.hpp"
#include "engine/draft_policy.hpp"
#include "engine/request_checks.hpp"
#include "engine/runtime.hpp"
#include "gpu/platform.hpp"

namespace mtlqwen {

namespace {

double seconds(Clock::time_point from, Clock::time_point to) {
  return std::chrono::duration<double>(to - from).count();
}

}  // namespace

Engine::Engine(const EngineOptions& options, const Progress& progress)
    : process_(getpid()), slots_(options.slots) {
  require_valid(options);
  constexpr uint64_t kStages = 3;
  uint64_t stage_index = 0;
  runtime_ = std::make_unique<Runtime>(options, [&](const char* stage) {
    if (progress) progress(stage, stage_index++, kStages);
  });
  if (progress) progress("ready", kStages, kStages);
  context_ = runtime_->context;
  vocab_ = runtime_->weights.config().vocab;
  n_valid_tokens_ = runtime_->weights.config().n_valid_tokens;
  checkpoint_interval_ = options.checkpoint_interval;
  candidate_bytes_ = options.candidate_bytes;
  drafter_ = name_of(runtime_->drafter_kind);
  if (runtime_->drafts()) {
    const std::vector<DraftOption> drafters = runtime_->draft_options();
    has_ngram_ =
        std::ranges::find(drafters, DrafterKind::kNgram, &DraftOption::kind) != drafters.end();
    policy_ = std::make_unique<DraftPolicy>(drafters);
  }
  if (!options.cache_dir.empty()) {
    runtime_->open_files();
    archive_ =
        std::make_unique<Archive>(options.cache_dir, options.cache_dir_bytes, *runtime_->origin);
  }
  eos_ids_ = runtime_->weights.config().eos_ids;
  prefill_rows_ = static_cast<uint32_t>(options.prefill_share * static_cast<float>(kPassRows));
  slot_owner_.assign(slots_, 0);
  stats_.device = runtime_->device.name();
  stats_.threads = runtime_->device.n_threads();
  if (options.lock_weights) {
    stats_.weights_locked_bytes = runtime_->weights.file_bytes();
    if (runtime_->dflash) stats_.weights_locked_bytes += runtime_->dflash->file_bytes();
  }
  stats_.weights_bytes = runtime_->device_weights.mapped_bytes();
  stats_.weights_copied_bytes = runtime_->device_weights.arena_bytes();
  if (runtime_->dflash_weights) {
    stats_.draft_bytes =
        runtime_->dflash_weights->mapped_bytes() + runtime_->dflash_weights->arena_bytes();
  }
  stats_.arena_bytes = runtime_->forward.arena_bytes();
  stats_.budget_bytes = runtime_->budget_bytes;
}

Engine::~Engine() {
  if (process_ == getpid()) {
    close();
  } else {
    // In a forked child locks may be held by threads that are not there. Its memory goes with it.
    static_cast<void>(archive_.release());
    static_cast<void>(runtime_.release());
  }
}

void Engine::require_open_locked() const {
  if (closed_) throw std::runtime_error("[engine] closed: the engine was closed; make a new one");
}

void Engine::require_outside_step() const {
  if (calls_out_.load() == std::this_thread::get_id()) {
    throw std::logic_error(
        "[engine] device: the thread inside step() has it; make this call after the step");
  }
}

void Engine::set_mask_fn(FillMasks fill) {
  const std::lock_guard lock(mutex_);
  require_open_locked();
  if (mask_fn_) throw std::logic_error("[engine] set_mask_fn: called before; once is enough");
  mask_fn_ = std::move(fill);
}

Sequence& Engine::find_locked(SequenceId id) {
  const auto found = sequences_.find(id);
  if (found == sequences_.end() || found->second.released) {
    throw std::invalid_argument(concat("[engine] sequence ", id, ": unknown, or released"));
  }
  return found->second;
}

SequenceId Engine::submit(std::vector<int32_t> token_ids, RequestOptions options) {
  const std::lock_guard lock(mutex_);
  require_open_locked();
  require_valid(token_ids, options, vocab_, n_valid_tokens_);
  if (options.constraint && !mask_fn_) {
    throw std::logic_error("[engine] constraint: nobody fills masks; call set_mask_fn before");
  }
  if (token_ids.size() >= context_) {
    throw CapacityError(
        concat("[engine] prompt: does not fit the context (got ", token_ids.size(),
               " tokens, the context holds ", context_,
               " with at least one of them generated); shorten the prompt or raise context="));
  }
  const SequenceId id = next_id_++;
  Sequence& sequence = sequences_[id];
  sequence.id = id;
  sequence.n_prompt = static_cast<uint32_t>(token_ids.size());
  sequence.polled = token_ids.size();
  sequence.request = std::move(token_ids);
  sequence.options = std::move(options);
  std::ranges::sort(sequence.options.checkpoint_at);
  if (sequence.options.prompt_logprobs) sequence.options.recall = false;  // every row has its say
  if (sequence.options.edits != EditOptions{}) {
    sequence.edits = std::make_unique<LogitEdits>(sequence.options.edits, sequence.options.stop_ids,
                                                  n_valid_tokens_);
  }
  sequence.submitted = Clock::now();
  if (sequence.options.deadline_s) {
    sequence.deadline =
        sequence.submitted + std::chrono::duration_cast<Clock::duration>(
                                 std::chrono::duration<double>(*sequence.options.deadline_s));
  }
  if (sequence.options.max_tokens == 0) sequence.finish = FinishReason::kLength;
  ++stats_.submitted;
  return id;
}

std::vector<SequenceId> Engine::news() {
  const std::lock_guard lock(mutex_);
  require_open_locked();
  std::vector<SequenceId> result;
  for (const auto& [id, sequence] : sequences_) {
    const bool waits = sequence.finished() || sequence.polled < sequence.request.size();
    if (waits && !sequence.released) result.push_back(id);
  }
  return result;
}

Poll Engine::poll(SequenceId id) {
  const std::lock_guard lock(mutex_);
  require_open_locked();
  Sequence& sequence = find_locked(id);
  if (sequence.finish == FinishReason::kError) std::rethrow_exception(sequence.error);
  Poll result{.token_ids = {sequence.request.begin() + static_cast<std::ptrdiff_t>(sequence.polled),
                            sequence.request.end()},
              .finish = sequence.finish,
              .n_prompt = sequence.n_prompt,
              .n_completion = sequence.n_completion(),
              .n_cached = sequence.cached_tokens,
              .drafter = drafter_,
              .drafts = sequence.drafts,
              .logprobs = std::exchange(sequence.logprobs, {})};
  if (sequence.n_told == sequence.n_to_tell()) {
    result.prompt_logprobs = std::exchange(sequence.prompt_logprobs, {});
  }
  sequence.polled = sequence.request.size();
  if (sequence.n_completion() > 0) {
    result.ttft_s = seconds(sequence.submitted, sequence.first_token);
    result.prefill_s = seconds(sequence.started, sequence.first_token);
    result.decode_s = seconds(sequence.first_token, sequence.last_token);
  }
  return result;
}

// Where others share the pass, never two in a row: else a stream of cancels would keep them from
// moving.
void Engine::stop_pass_of_locked(SequenceId id) {
  if (std::find(in_pass_.begin(), in_pass_.end(), id) == in_pass_.end()) return;
  const bool shared = std::any_of(in_pass_.begin(), in_pass_.end(), [&](SequenceId other) {
    return !sequences_.at(other).cancel_requested;
  });
  if (!shared || !last_pass_stopped_) runtime_->device.request_abort();
}

void Engine::cancel(SequenceId id) {
  const std::lock_guard lock(mutex_);
  require_open_locked();
  Sequence& sequence = find_locked(id);
  if (sequence.finished()) return;
  sequence.cancel_requested = true;
  if (!sequence.slot) {
    finish_locked(sequence, FinishReason::kCancelled);
  } else {
    stop_pass_of_locked(id);
  }
}

void Engine::release(SequenceId id) {
  const std::lock_guard lock(mutex_);
  if (closed_) return;
  Sequence& sequence = find_locked(id);
  if (!sequence.slot) {
    if (!sequence.finished()) finish_locked(sequence, FinishReason::kCancelled);
    sequences_.erase(id);
    return;
  }
  sequence.cancel_requested = true;
  sequence.released = true;  // erased when the step has let go of it
  stop_pass_of_locked(id);
}

void Engine::close() {
  {
    const std::lock_guard lock(mutex_);
    if (closed_) return;
    closed_ = true;
    runtime_->device.request_abort();
    if (calls_out_.load() == std::this_thread::get_id()) {
      closes_with_step_ = true;
      return;
    }
  }
  finish_close();
}

bool Engine::take_close() {
  const std::lock_guard lock(mutex_);
  return std::exchange(closes_with_step_, false);
}

void Engine::finish_close() {
  const std::lock_guard wait_for_step(step_mutex_);
  const std::lock_guard wait_for_device(device_mutex_);
  flush_disk();
  const std::lock_guard lock(mutex_);
  stop_trace_locked();
  sequences_.clear();
  runtime_.reset();
}

Stats Engine::stats() {
  const std::lock_guard lock(mutex_);
  require_open_locked();
  return stats_locked();
}

Stats Engine::stats_locked() const {
  Stats stats = stats_;
  stats.memory_bytes = runtime_->device.allocated_bytes();
  stats.pool_bytes = runtime_->pool.heap_bytes();
  stats.kv_bytes = runtime_->kv_pool.bound_bytes();
  stats.bank_bytes = runtime_->banks.held_bytes();
  add_cache_locked(stats);
  for (const auto& [id, sequence] : sequences_) {
    if (sequence.finished()) continue;
    ++(sequence.slot ? stats.live : stats.waiting);
  }
  return stats;
}

void Engine::start_trace(const std::string& path) {
  const std::lock_guard lock(mutex_);
  require_open_locked();
  if (trace_) {
    throw std::logic_error(concat("[engine] trace: one is running (to ", trace_->path(),
                                  "); stop it before you start another"));
  }
  trace_ = std::make_shared<Trace>(path, stats_.device, runtime_->device.new_timer());
}

bool Engine::stop_trace() {
  const std::lock_guard lock(mutex_);
  return stop_trace_locked();
}

// A step that is running keeps the trace, but adds nothing once it is closed.
bool Engine::stop_trace_locked() {
  if (!trace_) return true;
  for (const auto& [id, sequence] : sequences_) {
    if (!sequence.finished()) trace_->add(sequence, "live");
  }
  const bool is_whole = trace_->close();
  trace_.reset();
  return is_whole;
}

void Engine::set_pass_rows(uint32_t rows) {
  if (rows < slots_ || rows > kPassRows) {
    throw std::invalid_argument(concat("[engine] pass rows: out of range (got ", rows, ", want ",
                                       slots_, " to ", kPassRows, ")"));
  }
  const std::lock_guard lock(mutex_);
  pass_rows_ = rows;
}

void Engine::check_integrity() {
  require_outside_step();
  const std::lock_guard device(device_mutex_);  // what is being saved has an owner of its own
  const std::lock_guard lock(mutex_);
  require_open_locked();
  check_memory_locked();
  for (uint32_t slot = 0; slot < slots_; ++slot) {
    const SequenceId owner = slot_owner_[slot];
    if (owner == 0) {
      if (!runtime_->kv_pool.bundles(slot).empty() || runtime_->forward.n_unsettled(slot) > 0)
        throw std::logic_error(concat("[engine] slot ", slot, ": free, but holds bundles or rows"));
      continue;
    }
    const uint32_t reserved = runtime_->kv_pool.reserved_tokens(slot);
    const Sequence& sequence = sequences_.at(owner);
    if (sequence.slot != slot || sequence.finished() || sequence.kv_valid > reserved ||
        runtime_->forward.n_unsettled(slot) > sequence.kv_valid ||
        sequence.kv_valid >= sequence.request.size() ||
        sequence.bank.has_value() != (sequence.kv_valid > 0)) {
      throw std::logic_error(concat("[engine] slot ", slot, ": contradicts sequence ", owner,
                                    " (kv_valid ", sequence.kv_valid, ", reserved ", reserved,
                                    ", request ", sequence.request.size(),
                                    sequence.bank ? ", with a bank)" : ", without a bank)"));
    }
  }
}

std::vector<float> Engine::last_logits(SequenceId id) {
  const std::lock_guard lock(mutex_);
  require_open_locked();
  const Sequence& sequence = find_locked(id);
  if (!sequence.logit_row) return {};
  const std::span<const float> logits = runtime_->forward.logits(*sequence.logit_row);
  return {logits.begin(), logits.end()};
}

}  // namespace mtlqwen
