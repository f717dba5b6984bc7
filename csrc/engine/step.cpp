// Engine::step(): one pass, room by room. What concerns memory stands in
// memory.cpp, the rest of Engine in engine.cpp.
#include <algorithm>
#include <stdexcept>
#include <utility>

#include "base/error.hpp"
#include "engine/device_guard.hpp"
#include "engine/drafts.hpp"
#include "engine/engine.hpp"
#include "engine/runtime.hpp"
#include "engine/scheduler.hpp"

namespace mtlqwen {

namespace {

// Banks that stay mapped while the engine is idle: the two of the next sequence.
constexpr uint32_t kIdleSpares = 2;

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

// What the bad words of its request look back at.
std::span<const int32_t> tail_of(const Sequence& sequence) {
  if (!sequence.edits) return {};
  const size_t n = std::min<size_t>(sequence.edits->longest_word(), sequence.request.size());
  return std::span(sequence.request).last(n);
}

// Marks the calling thread as the one that runs code of the caller's.
class CallOut {
 public:
  explicit CallOut(std::atomic<std::thread::id>& who) : who_(who) {
    who_.store(std::this_thread::get_id());
  }
  ~CallOut() { who_.store({}); }
  CallOut(const CallOut&) = delete;
  CallOut& operator=(const CallOut&) = delete;

 private:
  std::atomic<std::thread::id>& who_;
};

}  // namespace

// Marks the calling thread as the one inside step().
class Engine::StepGuard {
 public:
  explicit StepGuard(Engine& engine) : lock_(engine.step_mutex_, std::defer_lock) {
    engine.require_outside_step();
    if (lock_.try_lock()) return;
    {
      const std::lock_guard lock(engine.mutex_);
      engine.require_open_locked();  // it may be close() that holds the lock
    }
    throw std::logic_error(
        "[engine] step: another thread is inside step(); let one thread drive the engine");
  }

 private:
  std::unique_lock<std::mutex> lock_;
};

bool Engine::step() {
  bool busy = false;
  try {
    busy = step_open();
  } catch (...) {
    if (take_close()) finish_close();
    throw;
  }
  if (take_close()) finish_close();
  return busy;
}

bool Engine::step_open() {
  StepTrace step;
  RoomTimes& rooms = step.record.rooms;
  const StepGuard guard(*this);
  const DeviceGuard device(*this);
  fetch_from_disk();
  Batch batch;
  std::vector<PackedQuery> packed;
  {
    const std::lock_guard lock(mutex_);
    require_open_locked();
    runtime_->forward.begin_step();  // who retires may leave a checkpoint
    rooms.enter(Room::kRetire);
    drop_pass_banks_locked();
    retire_locked();
    rooms.enter(Room::kAdmit);
    admit_locked();
    rooms.enter(Room::kPlan);
    batch = plan_locked();
    const bool idle = batch.queries.empty();
    rooms.enter(Room::kReserve);
    reserve_locked(batch);
    rooms.enter(Room::kPack);
    packed = pack_locked(batch);
    rooms.leave();
    if (batch.queries.empty()) {
      // Memory goes back at the second idle step: the next request often comes at once, and taking
      // the pages again costs more than its first pass saves.
      if (std::exchange(rested_, true)) {
        runtime_->banks.reclaim(kIdleSpares);
        runtime_->pool.trim();
      }
      if (!idle) return true;  // whoever was planned has failed; others may wait for its slot
    } else {
      rested_ = false;
      describe_locked(batch, step);
    }
  }
  if (batch.queries.empty()) return feed_disk(true);
  run_pass(batch, packed, step);
  feed_disk(false);
  return true;
}

// What was cancelled, forgotten or is late leaves before the pass is planned.
void Engine::retire_locked() {
  const auto now = Clock::now();
  for (auto next = sequences_.begin(); next != sequences_.end();) {
    const auto current = next++;
    Sequence& sequence = current->second;
    if (!sequence.finished()) {
      if (sequence.cancel_requested) {
        finish_locked(sequence, FinishReason::kCancelled);
      } else if (sequence.deadline && now >= *sequence.deadline) {
        finish_locked(sequence, FinishReason::kDeadline);
      }
    }
    if (sequence.released) sequences_.erase(current);
  }
}

// Waiting sequences take free slots by aged priority, then arrival. One that memory is missing for holds up those behind it:
// else short requests could starve a long one. One that waits for a prefix does not; and no more are
// looked at for that in one step than could run.
void Engine::admit_locked() {
  for (uint32_t n_awaiting = 0; n_awaiting < kMaxSlots;) {
    const auto free = std::find(slot_owner_.begin(), slot_owner_.end(), SequenceId{0});
    if (free == slot_owner_.end()) return;
    std::vector<Sequence*> line;
    std::vector<Waiting> waiting;
    for (auto& [id, sequence] : sequences_) {
      if (sequence.slot || sequence.finished() || awaits_prefix_locked(sequence)) continue;
      line.push_back(&sequence);
      waiting.push_back(
          {.priority = sequence.options.priority, .passed_over = sequence.passed_over});
    }
    const std::optional<size_t> next = choose_next(waiting);
    if (!next) return;
    Sequence& sequence = *line[*next];
    if (await_prefix_locked(sequence)) {
      ++n_awaiting;
      continue;
    }
    if (!has_memory_for_locked(sequence)) return;
    for (size_t i = 0; i < *next; ++i) ++line[i]->passed_over;
    *free = sequence.id;
    sequence.slot = static_cast<uint32_t>(free - slot_owner_.begin());
    recall_locked(sequence);
    if (sequence.started == Clock::time_point{}) sequence.started = Clock::now();
  }
}

Batch Engine::plan_locked() {
  std::vector<Sequence*> live;
  for (auto& [id, sequence] : sequences_) {
    if (sequence.slot) live.push_back(&sequence);
  }
  std::vector<Draft> drafts = plan_drafts_locked(live);
  std::vector<RowWish> wishes;
  for (size_t i = 0; i < live.size(); ++i) {
    wishes.push_back({.pending = live[i]->pending(),
                      .width = drafts[i].choice.width,
                      .first_told = live[i]->n_told - std::min(live[i]->n_told, live[i]->kv_valid),
                      .n_told = live[i]->n_to_tell() - live[i]->n_told});
  }
  std::vector<uint32_t> counts = plan_rows(wishes, pass_rows_, prefill_rows_);
  limit_told(wishes, runtime_->forward.logit_rows(), counts);
  Batch batch;
  for (size_t i = 0; i < live.size(); ++i) {
    batch.queries.push_back({.sequence = live[i]->id,
                             .slot = *live[i]->slot,
                             .count = counts[i],
                             .kv_valid = live[i]->kv_valid,
                             .bank = live[i]->bank.value_or(0),
                             .writes = {},
                             .width = drafts[i].choice.width,
                             .proposals = std::move(drafts[i].proposals)});
    Query& query = batch.queries.back();
    if (query.width > 0) {
      query.writes = {{.rows = 1, .bank = 0}};  // reserve says how it is rolled back
    } else {
      plan_writes_locked(*live[i], query);
    }
    query.emits = query.count == wishes[i].pending + query.width;
    query.first_told = wishes[i].first_told;
    query.n_told =
        std::min(query.count - std::min(query.count, query.first_told), wishes[i].n_told);
  }
  return batch;
}

// The spans stay valid through the pass: a request grows only at commit, and a live sequence is
// never erased before.
std::vector<PackedQuery> Engine::pack_locked(const Batch& batch) {
  std::vector<PackedQuery> packed;
  in_pass_.clear();
  for (const Query& query : batch.queries) {
    const Sequence& sequence = sequences_.at(query.sequence);
    const std::optional<ConstraintOptions>& constraint = sequence.options.constraint;
    std::optional<HeldText> held;
    if (sequence.held()) {
      held = {.key = constraint->key,
              .n_heard = sequence.n_heard,
              .fresh = std::span(sequence.request).subspan(sequence.n_prompt + sequence.n_heard)};
    }
    packed.push_back(
        {.query = query,
         .tokens = std::span(sequence.request).subspan(query.kv_valid, query.count - query.width),
         .sampling = sequence.options.sampling,
         .stop_ids = sequence.options.stop_ids,
         .opening = constraint && !held ? constraint->begins_behind : std::nullopt,
         .held = held,
         .edits = sequence.edits.get(),
         .tail = tail_of(sequence),
         .n_generated = sequence.n_completion(),
         .logprobs = sequence.options.logprobs,
         .prompt_logprobs = sequence.options.prompt_logprobs,
         .told = std::span(sequence.request)
                     .subspan(query.n_told > 0 ? query.kv_valid + query.first_told + 1 : 0,
                              query.n_told)});
    in_pass_.push_back(query.sequence);
  }
  return packed;
}

void Engine::describe_locked(const Batch& batch, StepTrace& step) {
  StepRecord& record = step.record;
  for (const Query& query : batch.queries) {
    (is_decode(query) ? record.decode_rows : record.prefill_rows) += query.count;
    record.drafted += query.width;
  }
  runtime_->forward.set_timer(trace_ ? trace_->timer() : nullptr);
  if (!trace_) return;
  step.trace = trace_;
  record.pass = stats_.passes + 1;
  const Stats now = stats_locked();
  record.live = now.live;
  record.waiting = now.waiting;
  record.kv_bytes = now.kv_bytes;
}

// On failure nothing that a caller can see has changed.
void Engine::run_pass(const Batch& batch, std::span<const PackedQuery> packed, StepTrace& step) {
  StepRecord& record = step.record;
  record.rooms.enter(Room::kForward);
  try {
    const PassResult result =
        runtime_->forward.run(packed, runtime_->kv_pool.pending_copies(),
                              [this](std::span<const MaskItem> items, const MaskTable& masks) {
                                return fill_masks(items, masks);
                              });
    record.rooms.enter(Room::kCommit);
    {
      const std::lock_guard lock(mutex_);
      in_pass_.clear();
      const Decoded decoded = commit_locked(batch, result);
      record.rooms.leave();
      record.accepted = decoded.n_accepted;
      count_committed_locked(record, decoded);
    }
    record.outcome = "committed";
    record.encoded = runtime_->forward.encoded();
    if (step.trace) record.kernels = runtime_->forward.kernels();
  } catch (const Aborted&) {
    const std::lock_guard lock(mutex_);
    last_pass_stopped_ = true;
    stop_locked(record);  // whoever asked is retired by the next step; the others repeat the pass
  } catch (const MasksFailed& failed) {
    {
      const std::lock_guard lock(mutex_);
      stop_locked(record);
    }
    std::rethrow_exception(failed.error);
  } catch (...) {
    const std::lock_guard lock(mutex_);
    in_pass_.clear();
    drop_pass_banks_locked();
    ++stats_.passes_failed;
    stats_.step_s += seconds_since(record.begin);
    fail_live_locked(std::current_exception());
    throw;
  }
}

void Engine::stop_locked(StepRecord& record) {
  in_pass_.clear();
  drop_pass_banks_locked();
  ++stats_.passes_stopped;
  stats_.step_s += seconds_since(record.begin);
  record.outcome = "stopped";
  record.encoded = runtime_->forward.encoded();
}

std::vector<std::exception_ptr> Engine::fill_masks(std::span<const MaskItem> items,
                                                   const MaskTable& masks) {
  const CallOut call(calls_out_);
  std::vector<std::exception_ptr> errors = mask_fn_(items, masks);
  if (errors.size() != items.size()) {
    throw std::invalid_argument(
        concat("[engine] mask_fn: want an error or none for each item (got ", errors.size(),
               ", want ", items.size(), ")"));
  }
  return errors;
}

void Engine::count_committed_locked(const StepRecord& record, const Decoded& decoded) {
  const double step_s = seconds_since(record.begin);
  const double gpu_s = runtime_->forward.gpu_seconds();
  ++stats_.passes;
  last_pass_stopped_ = false;
  stats_.prefill_rows += record.prefill_rows;
  stats_.decode_rows += record.decode_rows;
  if (policy_) observe_locked(record, decoded, step_s);
  stats_.step_s += step_s;
  stats_.gpu_s += gpu_s;
  stats_.arena_bytes = runtime_->forward.arena_bytes();  // arrays of edits grow
  stats_.outside_s += step_s - gpu_s;
}

void Engine::observe_locked(const StepRecord& record, const Decoded& decoded, double step_s) {
  const Forward::Settled& settled = runtime_->forward.settled();
  if (settled.rows > 0) policy_->observe_settling(settled.rows, settled.seconds);
  if (record.prefill_rows > 0) return;
  policy_->observe_pass(shape_of(decoded.choices), step_s - settled.seconds,
                        static_cast<uint32_t>(decoded.choices.size()) + decoded.n_accepted,
                        settled.seconds);
}

// A mapping may be what failed.
void Engine::fail_live_locked(const std::exception_ptr& error) {
  for (auto& [id, sequence] : sequences_) {
    if (sequence.slot) finish_locked(sequence, FinishReason::kError, error);
  }
  runtime_->kv_pool.forget_unconfirmed();
  runtime_->banks.forget_unconfirmed();
}

}  // namespace mtlqwen
