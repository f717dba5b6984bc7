// A leader and its helpers: the threads that share the units of one job.
#pragma once
#include <atomic>
#include <cstdint>
#include <thread>
#include <vector>

namespace mtlqwen::hostmetal {

struct Helper;

// One job at a time. Units are claimed in chunks: a helper that is slow, asleep or preempted delays no more than the chunk that
// it holds, and a job is done without it where it holds none.
class alignas(64) Team {
 public:
  using Function = void (*)(void* context, uint64_t first, uint64_t count);

  // The leader: calls function(context, first, count), on several threads at once, until all of 0 .. units-1 are covered.
  void run(uint64_t units, Function function, void* context);
  // While no job runs.
  void add(Helper* helper);
  [[nodiscard]] std::vector<Helper*> dissolve();
  [[nodiscard]] bool has_helpers() const { return !helpers_.empty(); }

  // A helper: claims chunks until none are left.
  void help();
  [[nodiscard]] bool has_work() const { return static_cast<uint32_t>(unclaimed_.load()) != 0; }

 private:
  [[nodiscard]] uint32_t work();  // units done
  void wake_helpers(uint32_t units);
  void wait_for_helpers();

  // One cache line: what a helper needs to begin. Number of the job, and below it its units that nobody has claimed. The number
  // keeps a claim that was prepared for one job from succeeding in the next.
  std::atomic<uint64_t> unclaimed_{0};
  std::atomic<uint32_t> n_threads_{1};
  // Of the job at hand: read between a claim and the report that it is done, written before the job is open.
  uint32_t units_ = 0;
  uint64_t offset_ = 0;
  Function function_ = nullptr;
  void* context_ = nullptr;
  alignas(64) std::atomic<uint32_t> undone_{0};  // a futex: units claimed or not, and kWaited
  std::vector<Helper*> helpers_;                 // the leader's
};

// A thread of the pool.
struct alignas(64) Helper {
  std::atomic<Team*> team{nullptr};  // null: idle
  std::atomic<bool> stops{false};
  std::atomic<bool> asleep{false};
  std::atomic<uint32_t> alarm{0};  // a futex; changes with every wake
  std::thread thread;

  void live();
  void wake();  // no-op unless asleep
};

}  // namespace mtlqwen::hostmetal
