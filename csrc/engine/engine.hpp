// The owner of everything: model, memory, sequences. Somebody else (a thread of the caller) drives
// it by step().
#pragma once
#include <atomic>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "base/types.hpp"
#include "engine/options.hpp"
#include "engine/sequence.hpp"
#include "engine/trace.hpp"
#include "model/masks.hpp"

namespace mtlqwen {

class Archive;
class CheckpointFile;
class DraftPolicy;
class Runtime;
struct HostState;
class Transfer;
struct PackedQuery;
struct PassResult;
struct Committed;
struct Decoded;
struct Draft;
struct Recall;
struct StateOrigin;

// What load_checkpoint() found.
struct SavedCheckpoint {
  std::vector<int32_t> token_ids;
  std::string note;
  uint32_t n_cached = 0;  // of them, now in the cache
};

// What a caller learns about a sequence.
struct Poll {
  std::vector<int32_t> token_ids;  // new since the last poll
  FinishReason finish = FinishReason::kNone;
  uint32_t n_prompt = 0;
  uint32_t n_completion = 0;
  uint32_t n_cached = 0;     // of the prompt, taken from the cache
  std::string_view drafter;  // see Engine::drafter()
  DraftCounts drafts;
  LogprobLog logprobs{};  // of the new tokens, where they were asked for
  // Of the prompt's tokens but the first, once, when all are known.
  LogprobLog prompt_logprobs{};
  double ttft_s = 0.0;     // from submit to the first token; 0 before it
  double prefill_s = 0.0;  // from getting a slot to the first token
  double decode_s = 0.0;   // from the first token to the last
};

struct Stats {
  std::string device;
  uint32_t threads = 0;  // that run kernels; 0 on a GPU
  // memory_bytes is the sum of weights, copies, the drafter's, arenas and the pool.
  uint64_t memory_bytes = 0;          // owned by the engine
  uint64_t budget_bytes = 0;          // what memory_bytes may reach
  uint64_t weights_bytes = 0;         // mapped from files
  uint64_t weights_locked_bytes = 0;  // of the files, locked in memory
  uint64_t weights_copied_bytes =
      0;                     // small vectors, and tensors that kernels cannot read in place
  uint64_t arena_bytes = 0;  // activations, control arrays, masks, kernel arguments, rope, tape
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
  uint64_t tokens = 0;        // generated, those included that no caller wants
  uint64_t draft_bytes = 0;   // of the drafter's weights, in memory_bytes
  uint64_t draft_passes = 0;  // drafts verified, each of one sequence
  uint64_t drafted_tokens = 0;
  uint64_t accepted_tokens = 0;
  uint64_t cache_bytes = 0;         // that checkpoints hold: bundles, banks and their books
  uint64_t cache_budget_bytes = 0;  // what cache_bytes may reach
  uint64_t cache_checkpoints = 0;
  uint64_t cache_hits = 0;       // sequences that found a checkpoint when they got their slot
  uint64_t cache_misses = 0;     // and that did not
  uint64_t cache_published = 0;  // checkpoints so far
  uint64_t cache_evictions = 0;
  uint64_t cached_tokens = 0;     // taken from checkpoints
  uint64_t evicted_tokens = 0;    // computed again since their checkpoint had been evicted
  uint64_t uncovered_tokens = 0;  // computed again since no checkpoint stood behind them
  uint64_t disk_hits = 0;         // checkpoints read from cache_dir
  uint64_t disk_written = 0;
  uint64_t disk_failed = 0;  // not written: the disk was full, or refused
  double step_s = 0.0;       // wall time inside step()
  double gpu_s = 0.0;        // of it, the device working for committed passes
  double outside_s = 0.0;    // of it, steps of committed passes without the device's work
};

// What holds a bundle of the pool; several may.
enum BundleHolder : uint8_t { kHeldBySlot = 1, kHeldByCache = 2, kHeldByState = 4 };

// A block of the prefix tree, or a checkpoint in it, with the first tokens of it.
struct TreeMark {
  int32_t parent = -1;    // index of a block; -1: the empty prefix
  uint32_t n_tokens = 0;  // from the beginning to here
  uint32_t uses = 0;      // of a checkpoint
  std::vector<int32_t> tokens{};
};

// Memory as pictures show it.
struct MemoryMap {
  uint32_t block_tokens = 0;
  uint32_t n_bundles = 0;  // that the pool may have
  uint64_t bundle_bytes = 0;
  std::vector<uint8_t> holders{};  // (bundles up to the last one made) of BundleHolder
  std::vector<TreeMark> blocks{};  // parents first
  std::vector<TreeMark> checkpoints{};
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
  // Says who fills the masks of texts that a grammar holds; once, before the first of them. Called at
  // most once a step, by the thread inside step(), without a lock. What it throws step() throws, and the
  // next step makes the pass again; the only call of the engine that it may not make, and not
  // wait for, is one that needs the device.
  void set_mask_fn(FillMasks fill);
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
  // Cancels all; waits for the running pass to stop. Called by who fills masks, it ends with the step.
  void close();

  [[nodiscard]] Stats stats();
  [[nodiscard]] MemoryMap memory_map();  // O(bundles + tree), under the mutex

  // Writes what happens from the next step on to a file for trace viewers. Throws std::logic_error
  // where a trace is running, std::runtime_error where the file cannot be opened, DeviceError where
  // the device has no timestamps.
  void start_trace(const std::string& path);
  // Writes token ids and a note to a file, and the state of their deepest checkpoint where there is
  // one and it is asked for. Returns the tokens that the state stands after. Throws CapacityError,
  // FormatError, DeviceError.
  uint32_t save_checkpoint(const std::string& path, const std::vector<int32_t>& token_ids,
                           const std::string& note, bool with_state);
  // Reads such a file, all of it checked, and puts its state into the prefix cache. Throws
  // FormatError where it is damaged, ModelError where another model made it.
  SavedCheckpoint load_checkpoint(const std::string& path);

  // Completes the file; close() does it, too. False where it could not be written whole. Nothing,
  // and true, where none is running.
  bool stop_trace();

  // Who proposes: "off", "ngram", "mtp" or "dflash".
  [[nodiscard]] std::string_view drafter() const { return drafter_; }
  [[nodiscard]] uint32_t context() const { return context_; }
  [[nodiscard]] uint32_t slots() const { return slots_; }
  [[nodiscard]] uint32_t vocab() const { return vocab_; }
  [[nodiscard]] uint32_t n_valid_tokens() const {
    return n_valid_tokens_;
  }  // ids that have a token
  [[nodiscard]] const std::vector<int32_t>& eos_ids() const { return eos_ids_; }
  // Throws std::logic_error naming what contradicts what: bundles, banks, slots, sequences. Between steps only.
  void check_integrity();
  // Logits (vocab) behind the sequence's newest token; empty where the last pass did not sample it.
  // Between steps only.
  [[nodiscard]] std::vector<float> last_logits(SequenceId id);
  // Tests split prompts anywhere by it: rows of the passes to come, slots() to kPassRows.
  void set_pass_rows(uint32_t rows);
  // Tests say what is drafted: these tokens in the sequence's next pass that decodes, as far as they may be; so many
  // tokens in every pass of every sequence, or as many as are thought best. And they ask what was drafted last.
  void propose(SequenceId id, std::vector<int32_t> token_ids);
  void force_width(std::optional<uint32_t> width);
  [[nodiscard]] std::vector<int32_t> last_draft(SequenceId id);

 private:
  class StepGuard;
  class DeviceGuard;
  class Pin;
  void require_open_locked() const;
  void require_outside_step() const;
  [[nodiscard]] bool step_open();
  void finish_close();
  [[nodiscard]] bool take_close();
  [[nodiscard]] std::vector<std::exception_ptr> fill_masks(std::span<const MaskItem> items,
                                                           const MaskTable& masks);
  void stop_locked(StepRecord& record);
  Sequence& find_locked(SequenceId id);
  void stop_pass_of_locked(SequenceId id);
  // The rooms of a step (step.cpp, memory.cpp), in order.
  void retire_locked();
  void admit_locked();
  [[nodiscard]] bool has_memory_for_locked(const Sequence& sequence) const;
  [[nodiscard]] Batch plan_locked();
  void reserve_locked(Batch& batch);
  [[nodiscard]] bool reserve_one_locked(Sequence& sequence, Query& query);
  void reserve_draft_locked(Query& query);
  [[nodiscard]] bool make_room_locked(const Query& query);
  [[nodiscard]] bool make_room_locked(uint32_t n_bundles, uint32_t n_banks);
  [[nodiscard]] bool has_room_locked(uint32_t n_bundles, uint32_t n_banks);
  [[nodiscard]] uint64_t free_bundles_locked() const;
  [[nodiscard]] bool has_reclaimable_locked(uint32_t n_bundles, uint32_t n_banks) const;
  [[nodiscard]] Sequence* youngest_live_locked();
  void preempt_locked(Sequence& sequence);
  [[nodiscard]] std::vector<PackedQuery> pack_locked(const Batch& batch);
  void describe_locked(const Batch& batch, StepTrace& step);
  void run_pass(const Batch& batch, std::span<const PackedQuery> packed, StepTrace& step);
  void drop_pass_banks_locked();
  void keep_bank_locked(Sequence& sequence, uint32_t bank);
  Decoded commit_locked(const Batch& batch, const PassResult& result);
  void commit_logprobs_locked(Sequence& sequence, const Query& query, uint32_t accepted,
                              const Committed& committed);
  void commit_one_locked(const Query& query, Committed& committed);
  void count_committed_locked(const StepRecord& record, const Decoded& decoded);
  void observe_locked(const StepRecord& record, const Decoded& decoded, double step_s);
  void append_token_locked(Sequence& sequence, int32_t token, Clock::time_point now);
  void close_thinking_locked(Sequence& sequence, Clock::time_point now);
  void push_token_locked(Sequence& sequence, int32_t token, Clock::time_point now);
  void free_slot_locked(Sequence& sequence);
  void finish_locked(Sequence& sequence, FinishReason reason, std::exception_ptr error = nullptr);
  void fail_live_locked(const std::exception_ptr& error);
  void check_memory_locked() const;
  // Recall and remember (checkpoints.cpp).
  [[nodiscard]] bool awaits_prefix_locked(Sequence& sequence);
  [[nodiscard]] bool await_prefix_locked(Sequence& sequence);
  [[nodiscard]] uint32_t recallable_blocks_locked(const Sequence& sequence) const;
  void recall_locked(Sequence& sequence);
  void adopt_locked(Sequence& sequence, const Recall& found);
  void count_recall_locked(Sequence& sequence, const Recall& found);
  void plan_writes_locked(const Sequence& sequence, Query& query) const;
  // Drafts (drafts.cpp).
  [[nodiscard]] std::vector<Draft> plan_drafts_locked(std::span<Sequence* const> live);
  [[nodiscard]] uint32_t most_drafted_locked(const Sequence& sequence) const;
  [[nodiscard]] uint32_t match_locked(Sequence& sequence) const;
  [[nodiscard]] Draft forced_draft_locked(Sequence& sequence, uint32_t most);
  [[nodiscard]] uint32_t commit_draft_locked(Sequence& sequence, const Query& query,
                                             Committed& committed);
  [[nodiscard]] uint32_t accepted_locked(Sequence& sequence, const Query& query,
                                         Committed& committed);
  [[nodiscard]] bool is_boundary(const Sequence& sequence, uint32_t position) const;
  void remember_locked(const Sequence& sequence, const Query& query, uint32_t rows);
  void remember_end_locked(const Sequence& sequence);
  void publish_locked(const Sequence& sequence, uint32_t n_tokens, uint32_t bank);
  // Checkpoints and files (files.cpp). Those without _locked hold the device, but not the mutex.
  const StateOrigin& open_files();
  void queue_for_disk_locked(const Sequence& sequence);
  void run_copy(const std::function<void(Transfer&)>& copy);
  [[nodiscard]] std::optional<HostState> read_state(std::span<const int32_t> token_ids,
                                                    bool exactly);
  uint32_t publish_file(const CheckpointFile& file);
  void fetch_from_disk();
  void fetch_prefix(const std::vector<int32_t>& request, uint32_t cached);
  bool feed_disk(bool idle);
  void flush_disk();
  void add_cache_locked(Stats& stats) const;
  bool write_one_to_disk();
  bool stop_trace_locked();
  [[nodiscard]] Stats stats_locked() const;
  void map_bundles_locked(MemoryMap& map) const;
  void map_tree_locked(MemoryMap& map) const;

  int64_t process_ = 0;  // the one that it was made in
  uint32_t context_ = 0;
  uint32_t slots_ = 0;
  uint32_t vocab_ = 0;
  uint32_t n_valid_tokens_ = 0;
  std::vector<int32_t> eos_ids_;
  std::string_view drafter_;  // see drafter()
  std::unique_ptr<Runtime> runtime_;
  std::mutex mutex_;
  std::map<SequenceId, Sequence> sequences_;  // in order of arrival
  std::vector<SequenceId> slot_owner_;        // 0: free
  SequenceId next_id_ = 1;
  std::vector<SequenceId> in_pass_;   // sequences of the running pass
  std::vector<uint32_t> pass_banks_;  // that the pass writes; it owns them until it ends
  FillMasks mask_fn_;
  std::atomic<std::thread::id> calls_out_;  // the thread that is inside mask_fn_
  bool closes_with_step_ = false;           // asked for by who fills masks
  std::mutex step_mutex_;                   // held by the thread inside step()
  std::mutex device_mutex_;                 // held by whoever gives the device work
  uint32_t pass_rows_ = kPassRows;
  uint32_t prefill_rows_ = kPassRows;    // see EngineOptions::prefill_share
  uint32_t checkpoint_interval_ = 0;     // tokens; 0: none
  uint64_t candidate_bytes_ = 0;         // see EngineOptions
  std::unique_ptr<DraftPolicy> policy_;  // null: nobody drafts
  bool has_ngram_ = false;               // among those who draft
  std::optional<uint32_t> forced_width_;
  std::unique_ptr<Archive> archive_;          // null: no cache on disk
  std::deque<std::vector<int32_t>> to_disk_;  // prefixes whose checkpoints are to be written
  bool last_pass_stopped_ = false;
  bool rested_ = false;  // the last step had no pass to run
  bool closed_ = false;
  Stats stats_;
  std::shared_ptr<Trace> trace_;  // null: none is running
};

}  // namespace mtlqwen
