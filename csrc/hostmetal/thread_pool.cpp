#include "hostmetal/thread_pool.hpp"

#include <linux/futex.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <climits>

#include "hostmetal/cpu.hpp"

namespace mtlqwen::hostmetal {
namespace {

using Clock = std::chrono::steady_clock;

constexpr uint32_t kOpen = 1U << 31;    // of gate_: helpers may enter
constexpr uint32_t kWaited = 1U << 30;  // of gate_: the caller sleeps until the last helper leaves
constexpr auto kSpin = std::chrono::microseconds(50);
constexpr uint32_t kSpinsPerLook = 64;  // between looks at the clock
// Chunks shrink towards the end: each takes this part of what is left for its thread.
constexpr uint64_t kChunksPerThread = 4;

static_assert(sizeof(std::atomic<uint32_t>) == sizeof(uint32_t), "a futex is 32 bits");

void futex_wait(std::atomic<uint32_t>& word, uint32_t expected) {
  syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, expected, nullptr, nullptr, 0);
}

void futex_wake(std::atomic<uint32_t>& word, uint32_t n) {
  syscall(SYS_futex, &word, FUTEX_WAKE_PRIVATE, n, nullptr, nullptr, 0);
}

// True as soon as done() is; false after kSpin.
template <class Done>
bool spin_until(const Done& done) {
  const Clock::time_point end = Clock::now() + kSpin;
  do {
    for (uint32_t i = 0; i < kSpinsPerLook; ++i) {
      if (done()) return true;
      spin_pause();
    }
  } while (Clock::now() < end);
  return false;
}

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

ThreadPool::ThreadPool(unsigned n_threads) {
  for (unsigned i = 1; i < n_threads; ++i) {
    helpers_.emplace_back([this] { help(); });
  }
}

ThreadPool::~ThreadPool() {
  stop_.store(true);
  epoch_.fetch_add(1);
  futex_wake(epoch_, INT_MAX);
  for (std::thread& helper : helpers_) helper.join();
}

void ThreadPool::run(uint64_t units, Function function, void* context) {
  if (units <= 1 || helpers_.empty()) {
    if (units != 0) function(context, 0, units);
    return;
  }
  const std::lock_guard turn(turn_);
  function_ = function;
  context_ = context;
  units_ = units;
  next_.store(0, std::memory_order_relaxed);
  gate_.store(kOpen, std::memory_order_release);  // publishes the job
  epoch_.fetch_add(1);
  wake(static_cast<uint32_t>(std::min<uint64_t>(units - 1, helpers_.size())));
  work();
  close_and_wait();
}

// epoch_ and sleepers_ are sequentially consistent: either the sleeper sees the new epoch, or we see the sleeper.
void ThreadPool::wake(uint32_t n) {
  if (sleepers_.load() != 0) futex_wake(epoch_, n);
}

void ThreadPool::help() {
  pthread_setname_np(pthread_self(), "mtlqwen-pool");
  flush_denormals();
  uint32_t seen = 0;
  while (true) {
    if (!spin_until([&] { return epoch_.load(std::memory_order_acquire) != seen; })) {
      sleepers_.fetch_add(1);
      while (epoch_.load() == seen) futex_wait(epoch_, seen);
      sleepers_.fetch_sub(1);
    }
    seen = epoch_.load(std::memory_order_acquire);
    if (stop_.load()) return;
    if (!enter()) continue;  // the job was over before we woke
    work();
    leave();
  }
}

bool ThreadPool::enter() {
  uint32_t gate = gate_.load(std::memory_order_acquire);
  while (gate & kOpen) {
    if (gate_.compare_exchange_weak(gate, gate + 1, std::memory_order_acq_rel)) return true;
  }
  return false;
}

void ThreadPool::leave() {
  if (gate_.fetch_sub(1, std::memory_order_acq_rel) == (kWaited | 1)) futex_wake(gate_, 1);
}

void ThreadPool::work() {
  uint64_t first = next_.load(std::memory_order_relaxed);
  while (first < units_) {
    const uint64_t left = units_ - first;
    const uint64_t count = std::max<uint64_t>(1, left / (n_threads() * kChunksPerThread));
    if (!next_.compare_exchange_weak(first, first + count, std::memory_order_relaxed)) continue;
    function_(context_, first, count);
    first = next_.load(std::memory_order_relaxed);
  }
}

void ThreadPool::close_and_wait() {
  gate_.fetch_and(~kOpen, std::memory_order_acq_rel);
  const auto is_empty = [this] { return gate_.load(std::memory_order_acquire) == 0; };
  if (spin_until(is_empty)) return;
  if (gate_.fetch_or(kWaited, std::memory_order_acq_rel) != 0) {
    uint32_t gate = gate_.load(std::memory_order_acquire);
    while (gate != kWaited) {
      futex_wait(gate_, gate);
      gate = gate_.load(std::memory_order_acquire);
    }
  }
}

}  // namespace mtlqwen::hostmetal
