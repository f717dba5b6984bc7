// The threads that run threadgroups.
#pragma once
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "hostmetal/team.hpp"

namespace mtlqwen::hostmetal {

// Shares the cores of the machine among the engines of a process: who wants threads takes a turn, and waits for it while the
// turns of others need the cores. Threads start when a turn first needs them; idle ones spin for a moment before they sleep. All
// of them flush denormals; who takes a turn sees to its own thread.
class ThreadPool {
 public:
  // The pool of this process. A forked child gets one of its own.
  static ThreadPool& shared();

  // Threads that may run at a time, those that take the turns included.
  explicit ThreadPool(unsigned n_threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  class Turn;
  // A turn of n threads comes soon: wakes those that sleep.
  void expect(unsigned n_threads);

 private:
  Team& begin(unsigned n_threads);
  void end(Team& team, unsigned n_threads);
  [[nodiscard]] Helper* idle_helper_locked();  // null: the machine has no more threads

  const unsigned n_threads_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::atomic<uint32_t> n_waiting_{0};
  uint64_t next_ticket_ = 0;  // turns begin in the order of their tickets
  uint64_t next_turn_ = 0;
  unsigned n_running_ = 0;  // threads of all turns
  std::vector<std::unique_ptr<Helper>> helpers_;
  std::vector<Helper*> idle_;
  std::vector<std::unique_ptr<Team>> teams_;
  std::vector<Team*> idle_teams_;
};

// The right to run on n threads, the calling one included. A turn of more threads than the pool has begins when no other runs.
// Used by one thread at a time.
class ThreadPool::Turn {
 public:
  Turn(ThreadPool& pool, unsigned n_threads);
  ~Turn();
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;

  // Calls body(first, count) on several threads at once until all of 0 .. units-1 are covered, then returns.
  template <class Body>
  void run(uint64_t units, Body& body) {
    if (units <= 1 || !team_->has_helpers()) {
      if (units != 0) body(0, units);
      return;
    }
    const Team::Function call = [](void* context, uint64_t first, uint64_t count) {
      (*static_cast<Body*>(context))(first, count);
    };
    team_->run(units, call, &body);
  }

  // Between two runs: a long turn lets those go first that wait by now.
  void yield();

 private:
  ThreadPool& pool_;
  const unsigned n_threads_;
  Team* team_;
  std::chrono::steady_clock::time_point began_;
};

}  // namespace mtlqwen::hostmetal
