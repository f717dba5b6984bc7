// A leader and its helpers: the threads that share the units of one job.
#pragma once
#include <array>
#include <atomic>
#include <cstdint>
#include <thread>
#include <vector>

namespace mtlqwen::hostmetal {

struct Helper;

// One job at a time. Its units are dealt out in parts, as many as there are threads. Who takes a part works through it from the
// front, a piece at a time, and leaves what it has not begun where others find it; who finds no part takes the second half of
// the largest rest. So a thread goes through neighbours as a rule, whose data the ones before have asked memory for; a thread
// that is slow, asleep or preempted delays no more than the piece that it holds, and a job is done without it where it holds none.
class alignas(64) Team {
 public:
  using Function = void (*)(void* context, uint64_t first, uint64_t count);

  // The leader: calls function(context, first, count), on several threads at once, until all of 0 .. units-1 are covered.
  void run(uint64_t units, Function function, void* context);
  // While no job runs.
  void add(Helper* helper);
  [[nodiscard]] std::vector<Helper*> dissolve();
  [[nodiscard]] bool has_helpers() const { return !helpers_.empty(); }

  // A helper: works until nobody has anything to give away. Its number in the team is 1 ..; 0 is the leader.
  void help(uint32_t number);
  [[nodiscard]] bool has_work() const;

 private:
  // Neighbouring units of the job at hand.
  struct alignas(8) Units {
    uint32_t first = 0;
    uint32_t end = 0;
    [[nodiscard]] uint32_t count() const { return end - first; }
  };
  // The parts that nobody has taken. The number keeps a thread that looked during one job from taking a part of the next.
  struct alignas(8) Parts {
    uint32_t job = 0;
    uint32_t left = 0;
  };
  // What a thread has taken and not begun. Whoever takes units out by compare-exchange owns them, at either end. A rest that is
  // not empty keeps its job open: what is read of the job after the exchange is of the same one.
  struct alignas(64) Rest {
    std::atomic<Units> units{};
  };
  static_assert(std::atomic<Units>::is_always_lock_free && std::atomic<Parts>::is_always_lock_free);
  // Threads of higher numbers leave nothing to others.
  static constexpr uint32_t kMostRests = 256;

  [[nodiscard]] uint32_t work(uint32_t number);  // units done
  [[nodiscard]] uint32_t work_through(Units units, uint32_t number);
  [[nodiscard]] Units take_part();
  [[nodiscard]] Units steal();
  void call(Units units) const { function_(context_, offset_ + units.first, units.count()); }
  void wake_helpers(uint32_t n);
  void wait_for_helpers();
  [[nodiscard]] uint32_t n_rests() const;

  // One cache line: what a helper needs to begin.
  std::atomic<Parts> parts_{};
  std::atomic<uint32_t> n_threads_{1};
  // Of the job at hand: read between taking units and the report that they are done, written before the job is open.
  uint32_t n_parts_ = 0;
  uint32_t units_ = 0;
  uint64_t offset_ = 0;
  Function function_ = nullptr;
  void* context_ = nullptr;
  alignas(64) std::atomic<uint32_t> undone_{0};  // a futex: units that are not done, and kWaited
  std::vector<Helper*> helpers_;                 // the leader's
  std::array<Rest, kMostRests> rests_;           // by number of the thread
};

// A thread of the pool.
struct alignas(64) Helper {
  std::atomic<Team*> team{nullptr};  // null: idle
  std::atomic<uint32_t> number{0};   // in its team
  std::atomic<bool> stops{false};
  std::atomic<bool> asleep{false};
  std::atomic<uint32_t> alarm{0};  // a futex; changes with every wake
  std::thread thread;

  void live();
  void wake();  // no-op unless asleep
};

}  // namespace mtlqwen::hostmetal
