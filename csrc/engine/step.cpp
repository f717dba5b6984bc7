// Engine::step(): one pass, room by room. The rest of Engine stands in engine.cpp.
#include <algorithm>
#include <stdexcept>
#include <utility>

#include "base/error.hpp"
#include "engine/engine.hpp"
#include "engine/runtime.hpp"
#include "engine/scheduler.hpp"

namespace mtlqwen {

// Marks the calling thread as the one inside step().
class Engine::StepGuard {
 public:
  explicit StepGuard(Engine& engine) : lock_(engine.step_mutex_, std::try_to_lock) {
    if (!lock_) {
      throw std::logic_error(
          "[engine] step: another thread is inside step(); let one thread drive the engine");
    }
  }

 private:
  std::unique_lock<std::mutex> lock_;
};

bool Engine::step() {
  const auto begin = Clock::now();
  {
    const std::lock_guard lock(mutex_);
    require_open_locked();
  }
  const StepGuard guard(*this);
  Batch batch;
  std::vector<PackedQuery> packed;
  {
    const std::lock_guard lock(mutex_);
    require_open_locked();
    runtime_->device.clear_abort();
    retire_cancelled_locked();
    admit_locked();
    batch = plan_locked();
    reserve_locked(batch);
    packed = pack_locked(batch);
  }
  if (batch.queries.empty()) return false;
  run_pass(batch, packed);
  const std::lock_guard lock(mutex_);
  stats_.step_s += std::chrono::duration<double>(Clock::now() - begin).count();
  return true;
}

void Engine::retire_cancelled_locked() {
  for (auto next = sequences_.begin(); next != sequences_.end();) {
    const auto current = next++;
    Sequence& sequence = current->second;
    if (sequence.cancel_requested && !sequence.finished())
      finish_locked(sequence, FinishReason::kCancelled);
    if (sequence.released) sequences_.erase(current);
  }
}

// Waiting sequences take free slots in order of arrival.
void Engine::admit_locked() {
  for (auto& [id, sequence] : sequences_) {
    if (sequence.slot || sequence.finished()) continue;
    const auto free = std::find(slot_owner_.begin(), slot_owner_.end(), SequenceId{0});
    if (free == slot_owner_.end()) return;
    *free = id;
    sequence.slot = static_cast<uint32_t>(free - slot_owner_.begin());
    sequence.started = Clock::now();
    runtime_->banks.reset(*sequence.slot);
  }
}

Batch Engine::plan_locked() const {
  std::vector<const Sequence*> live;
  std::vector<uint32_t> pending;
  for (const auto& [id, sequence] : sequences_) {
    if (!sequence.slot) continue;
    live.push_back(&sequence);
    pending.push_back(sequence.pending());
  }
  const std::vector<uint32_t> counts = plan_rows(pending, pass_rows_);
  Batch batch;
  for (size_t i = 0; i < live.size(); ++i) {
    batch.queries.push_back({.sequence = live[i]->id,
                             .slot = *live[i]->slot,
                             .first_row = 0,
                             .count = counts[i],
                             .kv_valid = live[i]->kv_valid,
                             .bank = runtime_->banks.bank(*live[i]->slot),
                             .emits = counts[i] == pending[i]});
  }
  return batch;
}

// Memory for every row of the plan. A sequence for which there is none fails alone; the others go
// on.
void Engine::reserve_locked(Batch& batch) {
  std::erase_if(batch.queries, [&](const Query& query) {
    try {
      runtime_->kv_pool.reserve(query.slot, query.kv_valid + query.count);
      runtime_->banks.ensure(query.slot);
      return false;
    } catch (const CapacityError&) {
      finish_locked(sequences_.at(query.sequence), FinishReason::kError, std::current_exception());
      return true;
    }
  });
  batch.rows = 0;
  for (Query& query : batch.queries) {
    query.first_row = std::exchange(batch.rows, batch.rows + query.count);
  }
}

// The spans stay valid through the pass: a request grows only at commit, and a live sequence is
// never erased before.
std::vector<PackedQuery> Engine::pack_locked(const Batch& batch) {
  std::vector<PackedQuery> packed;
  in_pass_.clear();
  for (const Query& query : batch.queries) {
    const Sequence& sequence = sequences_.at(query.sequence);
    packed.push_back({.query = query,
                      .tokens = std::span(sequence.request).subspan(query.kv_valid, query.count),
                      .sampling = sequence.options.sampling});
    in_pass_.push_back(query.sequence);
  }
  return packed;
}

// On failure nothing that a caller can see has changed.
void Engine::run_pass(const Batch& batch, std::span<const PackedQuery> packed) {
  try {
    const std::span<const int32_t> sampled = runtime_->forward.run(packed);
    const std::lock_guard lock(mutex_);
    in_pass_.clear();
    commit_locked(batch, sampled);
  } catch (const Aborted&) {
    const std::lock_guard lock(mutex_);
    in_pass_.clear();  // whoever asked is retired by the next step; the others repeat the pass
  } catch (...) {
    const std::lock_guard lock(mutex_);
    in_pass_.clear();
    fail_live_locked(std::current_exception());
    throw;
  }
}

// The only publication: kv_valid, bank and request move together.
void Engine::commit_locked(const Batch& batch, std::span<const int32_t> sampled) {
  const auto now = Clock::now();
  ++stats_.passes;
  stats_.gpu_s += runtime_->forward.gpu_seconds();
  uint32_t logit_row = 0;
  for (const Query& query : batch.queries) {
    Sequence& sequence = sequences_.at(query.sequence);
    (sequence.pending() == 1 ? stats_.decode_rows : stats_.prefill_rows) += query.count;
    sequence.kv_valid += query.count;
    runtime_->banks.flip(query.slot);
    sequence.logit_row.reset();
    if (!query.emits) continue;
    sequence.logit_row = logit_row;
    append_token_locked(sequence, sampled[logit_row++], now);
  }
}

void Engine::append_token_locked(Sequence& sequence, int32_t token, Clock::time_point now) {
  if (token < 0) {  // sample_pick found nothing to choose
    finish_locked(sequence, FinishReason::kError,
                  std::make_exception_ptr(DeviceError(
                      "[engine] logits: no finite value among them; the weights are damaged")));
    return;
  }
  sequence.request.push_back(token);
  sequence.last_token = now;
  if (sequence.n_completion() == 1) sequence.first_token = now;
  const std::vector<int32_t>& stop_ids = sequence.options.stop_ids;
  if (std::find(stop_ids.begin(), stop_ids.end(), token) != stop_ids.end()) {
    finish_locked(sequence, FinishReason::kStop);
  } else if (sequence.n_completion() == sequence.options.max_tokens ||
             sequence.request.size() == context_) {
    finish_locked(sequence, FinishReason::kLength);
  }
}

void Engine::finish_locked(Sequence& sequence, FinishReason reason, std::exception_ptr error) {
  sequence.finish = reason;
  sequence.error = std::move(error);
  if (!sequence.slot) return;
  runtime_->kv_pool.release(*sequence.slot);
  slot_owner_[*sequence.slot] = 0;
  sequence.slot.reset();
}

void Engine::fail_live_locked(const std::exception_ptr& error) {
  for (auto& [id, sequence] : sequences_) {
    if (sequence.slot) finish_locked(sequence, FinishReason::kError, error);
  }
}

}  // namespace mtlqwen
