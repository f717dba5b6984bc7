// The threads that run threadgroups.
#pragma once
#include <atomic>
#include <cstdint>
#include <mutex>
#include <thread>
#include <vector>

namespace mtlqwen::hostmetal {

// One job at a time, spread over the calling thread and the pool's own. A job of a few microseconds is worth spreading:
// idle threads spin for a moment before they sleep. All threads flush denormals; the caller sees to its own.
class ThreadPool {
 public:
  // The pool of this process, with a thread for each usable core. A forked child gets one of its own.
  static ThreadPool& shared();

  explicit ThreadPool(unsigned n_threads);  // the calling thread included
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  [[nodiscard]] unsigned n_threads() const { return static_cast<unsigned>(helpers_.size()) + 1; }

  // Calls body(first, count) on several threads at once until all of 0 .. units-1 are covered, then returns. Callers on
  // several threads take turns.
  template <class Body>
  void run(uint64_t units, Body& body) {
    const Function call = [](void* context, uint64_t first, uint64_t count) {
      (*static_cast<Body*>(context))(first, count);
    };
    run(units, call, &body);
  }

 private:
  using Function = void (*)(void* context, uint64_t first, uint64_t count);
  void run(uint64_t units, Function function, void* context);
  void help();            // a pool thread's life
  bool enter();           // joins the open job, if there is one
  void leave();           // the last one out wakes the caller
  void work();            // takes chunks until none are left
  void close_and_wait();  // nobody may enter any more; waits for those inside
  void wake(uint32_t n);

  std::mutex turn_;  // held for a whole job
  Function function_ = nullptr;
  void* context_ = nullptr;
  uint64_t units_ = 0;
  // Written by all threads in every job, hence a cache line each.
  alignas(64) std::atomic<uint64_t> next_{0};   // first unit that nobody has taken
  alignas(64) std::atomic<uint32_t> gate_{0};   // kOpen, kWaited, and the number of helpers inside
  alignas(64) std::atomic<uint32_t> epoch_{0};  // a futex; changes with every job
  alignas(64) std::atomic<uint32_t> sleepers_{0};
  std::atomic<bool> stop_{false};
  std::vector<std::thread> helpers_;
};

}  // namespace mtlqwen::hostmetal
