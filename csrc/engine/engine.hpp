// The owner of everything: model, memory, sequences. Somebody else (a thread of the caller) drives
// it by step().
#pragma once
#include <cstdint>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/types.hpp"
#include "engine/options.hpp"
#include "engine/sequence.hpp"
#include "engine/trace.hpp"

namespace mtlqwen {

class Runtime;
struct PackedQuery;

// What a caller learns about a sequence.
struct Poll {
  std::vector<int32_t> token_ids;  // new since the last poll
  FinishReason finish = FinishReason::kNone;
  uint32_t n_prompt = 0;
  uint32_t n_completion = 0;
  double ttft_s = 0.0;     // from submit to the first token; 0 before it
  double prefill_s = 0.0;  // from getting a slot to the first token
  double decode_s = 0.0;   // from the first token to the last
};

struct Stats {
  std::string device;
  uint32_t threads = 0;  // that run kernels; 0 on a GPU
  // memory_bytes is the sum of weights, copies, arenas and the pool.
  uint64_t memory_bytes = 0;          // owned by the engine
  uint64_t budget_bytes = 0;          // what memory_bytes may reach
  uint64_t weights_bytes = 0;         // mapped from files
  uint64_t weights_locked_bytes = 0;  // of the files, locked in memory
  uint64_t weights_copied_bytes =
      0;                     // small vectors, and tensors that kernels cannot read in place
  uint64_t arena_bytes = 0;  // activations, control arrays, kernel arguments, rope
  uint64_t pool_bytes = 0;   // heaps for keys, values and GDN states
  uint64_t kv_bytes = 0;     // of it, keys and values bound to sequences
  uint64_t bank_bytes = 0;   // of it, banks of GDN states, spares included
  uint32_t live = 0;         // sequences that have a slot
  uint32_t waiting = 0;
  uint64_t submitted = 0;  // sequences so far
  uint64_t preemptions = 0;
  uint64_t passes = 0;          // committed
  uint64_t passes_stopped = 0;  // by a cancel or close; repeated for those that go on
  uint64_t passes_failed = 0;
  uint64_t prefill_rows = 0;  // of committed passes
  uint64_t decode_rows = 0;
  uint64_t tokens = 0;     // generated
  double step_s = 0.0;     // wall time inside step()
  double gpu_s = 0.0;      // of it, the device working for committed passes
  double outside_s = 0.0;  // of it, steps of committed passes without the device's work
};

using Progress = std::function<void(std::string_view stage, uint64_t done, uint64_t total)>;

// Thread safe. One mutex guards the sequences; step() holds it only while it plans and while it
// commits, so submit, poll and cancel never wait for a pass. Nothing that a pass computes is
// visible before commit; a pass that fails changes nothing.
class Engine {
 public:
  Engine(const EngineOptions& options,
         const Progress& progress);  // throws FormatError, ModelError, CapacityError, DeviceError
  ~Engine();

  // Throws std::invalid_argument for an empty prompt, ids out of range, or options that make no
  // sense; CapacityError where the prompt does not fit the context.
  SequenceId submit(std::vector<int32_t> token_ids, RequestOptions options);
  // Runs one pass. False: nothing to do. Throws std::logic_error when another thread is inside
  // step(); DeviceError after the device failed (every live sequence then carries the error).
  bool step();
  // The sequences that poll() has something for: tokens, or their end.
  [[nodiscard]] std::vector<SequenceId> news();
  // Throws the sequence's error (DeviceError, CapacityError) once it failed.
  Poll poll(SequenceId id);
  void
  cancel(SequenceId id);  // the running pass is stopped if it holds the sequence; others repeat it
  void release(SequenceId id);  // forgets it; a live one is cancelled first
  void close();                 // cancels all; waits for the running pass to stop

  [[nodiscard]] Stats stats();

  // Writes what happens from the next step on to a file for trace viewers. Throws std::logic_error
  // where a trace is running, std::runtime_error where the file cannot be opened, DeviceError where
  // the device has no timestamps.
  void start_trace(const std::string& path);
  // Completes the file; close() does it, too. False where it could not be written whole. Nothing,
  // and true, where none is running.
  bool stop_trace();

  [[nodiscard]] uint32_t context() const { return context_; }
  [[nodiscard]] uint32_t slots() const { return slots_; }
  [[nodiscard]] uint32_t vocab() const { return vocab_; }
  [[nodiscard]] const std::vector<int32_t>& eos_ids() const { return eos_ids_; }
  // Throws std::logic_error naming what contradicts what: bundles, banks, slots, sequences. Between steps only.
  void check_integrity();
  // Logits (vocab) behind the sequence's newest token; empty where the last pass did not sample it.
  // Between steps only.
  [[nodiscard]] std::vector<float> last_logits(SequenceId id);
  // Tests split prompts anywhere by it: rows of the passes to come, slots() to kPassRows.
  void set_pass_rows(uint32_t rows);

 private:
  class StepGuard;
  void require_open_locked() const;
  Sequence& find_locked(SequenceId id);
  void stop_pass_of_locked(SequenceId id);
  // The rooms of a step (step.cpp, memory.cpp), in order.
  void retire_locked();
  void admit_locked();
  [[nodiscard]] bool has_memory_for_locked(const Sequence& sequence) const;
  [[nodiscard]] Batch plan_locked() const;
  void reserve_locked(Batch& batch);
  [[nodiscard]] bool reserve_one_locked(Sequence& sequence, Query& query);
  [[nodiscard]] bool has_room_locked(const Query& query);
  [[nodiscard]] Sequence* youngest_live_locked();
  void preempt_locked(Sequence& sequence);
  [[nodiscard]] std::vector<PackedQuery> pack_locked(const Batch& batch);
  void describe_locked(const Batch& batch, StepTrace& step);
  void run_pass(const Batch& batch, std::span<const PackedQuery> packed, StepTrace& step);
  void drop_pass_banks_locked();
  void keep_bank_locked(Sequence& sequence, uint32_t bank);
  void commit_locked(const Batch& batch, std::span<const int32_t> sampled);
  void count_committed_locked(const StepRecord& record);
  void append_token_locked(Sequence& sequence, int32_t token, Clock::time_point now);
  void free_slot_locked(Sequence& sequence);
  void finish_locked(Sequence& sequence, FinishReason reason, std::exception_ptr error = nullptr);
  void fail_live_locked(const std::exception_ptr& error);
  void check_memory_locked() const;
  bool stop_trace_locked();
  [[nodiscard]] Stats stats_locked() const;

  int64_t process_ = 0;  // the one that it was made in
  uint32_t context_ = 0;
  uint32_t slots_ = 0;
  uint32_t vocab_ = 0;
  std::vector<int32_t> eos_ids_;
  std::unique_ptr<Runtime> runtime_;
  std::mutex mutex_;
  std::map<SequenceId, Sequence> sequences_;  // in order of arrival
  std::vector<SequenceId> slot_owner_;        // 0: free
  SequenceId next_id_ = 1;
  std::vector<SequenceId> in_pass_;   // sequences of the running pass
  std::vector<uint32_t> pass_banks_;  // that the pass writes; it owns them until it ends
  std::mutex step_mutex_;             // held by the thread inside step()
  uint32_t pass_rows_ = kPassRows;
  uint32_t prefill_rows_ = kPassRows;  // see EngineOptions::prefill_share
  bool last_pass_stopped_ = false;
  bool closed_ = false;
  Stats stats_;
  std::shared_ptr<Trace> trace_;  // null: none is running
};

}  // namespace mtlqwen
