#include "hostmetal/thread_pool.hpp"

#include <unistd.h>

#include <algorithm>
#include <system_error>

#include "hostmetal/cpu.hpp"

namespace mtlqwen::hostmetal {
namespace {

using Clock = std::chrono::steady_clock;

// Of a turn that others wait for: long beside the wake of a thread, short beside what a reader notices.
constexpr std::chrono::milliseconds kSlice{1};

struct SharedPool {
  ThreadPool pool{usable_cores()};
  pid_t process = getpid();
};
std::atomic<SharedPool*> shared_pool{nullptr};

}  // namespace

// Never deleted: devices may outlive static destructors, and a child has no use for its parent's threads.
ThreadPool& ThreadPool::shared() {
  SharedPool* current = shared_pool.load(std::memory_order_acquire);
  if (current && current->process == getpid()) return current->pool;
  auto* fresh = new SharedPool;
  if (shared_pool.compare_exchange_strong(current, fresh, std::memory_order_acq_rel)) {
    return fresh->pool;
  }
  delete fresh;  // another thread was faster
  return current->pool;
}

ThreadPool::ThreadPool(unsigned n_threads) : n_threads_(n_threads) {}

ThreadPool::~ThreadPool() {
  for (const auto& helper : helpers_) {
    helper->stops.store(true);
    helper->wake();
  }
  for (const auto& helper : helpers_) helper->thread.join();
}

void ThreadPool::expect(unsigned n_threads) {
  const std::lock_guard lock(mutex_);
  const size_t n = std::min<size_t>(idle_.size(), n_threads - 1);
  for (size_t i = idle_.size() - n; i < idle_.size(); ++i) idle_[i]->wake();
}

Team& ThreadPool::begin(unsigned n_threads) {
  std::unique_lock lock(mutex_);
  const uint64_t ticket = next_ticket_++;
  n_waiting_.fetch_add(1, std::memory_order_relaxed);
  changed_.wait(lock, [&] {
    const bool fits = n_running_ == 0 || n_running_ + n_threads <= n_threads_;
    return ticket == next_turn_ && fits;
  });
  ++next_turn_;
  n_running_ += n_threads;
  if (n_waiting_.fetch_sub(1, std::memory_order_relaxed) != 1) changed_.notify_all();
  if (idle_teams_.empty())
    idle_teams_.push_back(teams_.emplace_back(std::make_unique<Team>()).get());
  Team& team = *idle_teams_.back();
  idle_teams_.pop_back();
  for (unsigned i = 1; i < n_threads; ++i) {
    Helper* helper = idle_helper_locked();
    if (!helper) break;
    team.add(helper);
  }
  return team;
}

void ThreadPool::end(Team& team, unsigned n_threads) {
  const std::lock_guard lock(mutex_);
  const std::vector<Helper*> helpers = team.dissolve();
  idle_.insert(idle_.end(), helpers.rbegin(), helpers.rend());
  idle_teams_.push_back(&team);
  n_running_ -= n_threads;
  if (n_waiting_.load(std::memory_order_relaxed) != 0) changed_.notify_all();
}

Helper* ThreadPool::idle_helper_locked() {
  if (idle_.empty()) {
    auto helper = std::make_unique<Helper>();
    try {
      helper->thread = std::thread([own = helper.get()] { own->live(); });
    } catch (const std::system_error&) {
      return nullptr;
    }
    idle_.push_back(helpers_.emplace_back(std::move(helper)).get());
  }
  Helper* helper = idle_.back();
  idle_.pop_back();
  return helper;
}

ThreadPool::Turn::Turn(ThreadPool& pool, unsigned n_threads)
    : pool_(pool), n_threads_(n_threads), team_(&pool.begin(n_threads)), began_(Clock::now()) {}

ThreadPool::Turn::~Turn() { pool_.end(*team_, n_threads_); }

void ThreadPool::Turn::yield() {
  if (pool_.n_waiting_.load(std::memory_order_relaxed) == 0 || Clock::now() - began_ < kSlice)
    return;
  pool_.end(*team_, n_threads_);
  team_ = &pool_.begin(n_threads_);
  began_ = Clock::now();
}

}  // namespace mtlqwen::hostmetal
