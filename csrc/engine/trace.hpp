// What an engine did and when, as a file for a trace viewer. docs/tracing.md describes the tracks.
#pragma once
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "cache/prefix_cache.hpp"
#include "engine/json_events.hpp"
#include "engine/rooms.hpp"
#include "model/program.hpp"

namespace mtlqwen {

// All that one step tells the trace.
struct StepRecord {
  Clock::time_point begin = Clock::now();
  RoomTimes rooms;
  Clock::time_point encoded{};  // inside of the room forward
  std::vector<KernelGroup> kernels;
  uint64_t pass = 0;  // its number, from 1
  uint32_t prefill_rows = 0;
  uint32_t decode_rows = 0;
  uint32_t drafted = 0;   // of decode_rows, proposals
  uint32_t accepted = 0;  // of them
  uint32_t live = 0;
  uint32_t waiting = 0;
  uint64_t kv_bytes = 0;
  std::string_view outcome = "failed";  // committed, stopped or failed
};

// Thread safe. No call but the constructor throws: a trace that cannot be written ends, the engine
// goes on.
class Trace {
 public:
  // Throws std::runtime_error where the file cannot be opened.
  Trace(const std::string& path, std::string_view device, std::shared_ptr<Timer> timer);

  void add(const StepRecord& step) noexcept;
  // A sequence that ends here, or lives while the trace ends: from submit to now.
  void add(const Sequence& sequence, std::string_view finish) noexcept;
  void add_preemption(SequenceId id) noexcept;
  // What a sequence that got its slot did not have to compute, and why not more.
  void add_recall(const Sequence& sequence, const Recall& recall) noexcept;
  // Completes the file; what comes later is dropped. False where something could not be written.
  bool close() noexcept;
  [[nodiscard]] const std::string& path() const { return path_; }
  [[nodiscard]] const std::shared_ptr<Timer>& timer() const { return timer_; }  // of its kernels

 private:
  template <class Write>
  void guarded(const Write& write) noexcept;
  void name_tracks(std::string_view device);
  void add_rooms(const StepRecord& step);
  void add_kernels(const StepRecord& step);
  void add_counters(const StepRecord& step);
  void add_phase(SequenceId id, std::string_view name, const Interval& interval);

  std::mutex mutex_;
  const std::string path_;
  const std::shared_ptr<Timer> timer_;
  const Clock::time_point start_ = Clock::now();
  JsonEvents events_;
  Interval writing_{};  // of the step before
  bool is_open_ = true;
  bool is_whole_ = true;
};

// Adds its record, finished or not, when a step is left.
class StepTrace {
 public:
  ~StepTrace() {
    record.rooms.leave();
    if (trace) trace->add(record);
  }
  StepTrace() = default;
  StepTrace(const StepTrace&) = delete;
  StepTrace& operator=(const StepTrace&) = delete;

  std::shared_ptr<Trace> trace;  // null: nobody asked
  StepRecord record;
};

}  // namespace mtlqwen
