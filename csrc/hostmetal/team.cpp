#include "hostmetal/team.hpp"

#include <pthread.h>

#include <algorithm>
#include <utility>

#include "hostmetal/cpu.hpp"
#include "hostmetal/futex.hpp"

namespace mtlqwen::hostmetal {
namespace {

constexpr uint32_t kWaited = 1U << 31;  // of undone_: the leader sleeps until the last unit is done
constexpr uint64_t kMostUnits = 1U << 30;  // of one job
// Longer than the pauses inside a pass, and so short that waiting for work costs a busy machine next to nothing.
constexpr std::chrono::microseconds kSpin{50};
// Chunks shrink towards the end: each takes this part of what is left for its thread.
constexpr uint32_t kChunksPerThread = 4;

}  // namespace

void Team::add(Helper* helper) {
  helpers_.push_back(helper);
  n_threads_.store(static_cast<uint32_t>(helpers_.size()) + 1, std::memory_order_relaxed);
  helper->team.store(this);
}

std::vector<Helper*> Team::dissolve() {
  for (Helper* helper : helpers_) helper->team.store(nullptr);
  n_threads_.store(1, std::memory_order_relaxed);
  return std::exchange(helpers_, {});
}

void Team::run(uint64_t units, Function function, void* context) {
  function_ = function;
  context_ = context;
  for (offset_ = 0; offset_ < units; offset_ += units_) {
    units_ = static_cast<uint32_t>(std::min(units - offset_, kMostUnits));
    undone_.store(units_, std::memory_order_relaxed);
    const uint64_t job = (unclaimed_.load(std::memory_order_relaxed) >> 32) + 1;
    unclaimed_.store(job << 32 | units_);  // opens the job
    wake_helpers(units_);
    const uint32_t done = work();
    if (undone_.fetch_sub(done, std::memory_order_acq_rel) != done) wait_for_helpers();
  }
}

// unclaimed_, Helper::team and Helper::asleep are sequentially consistent: either the sleeper sees the job, or we see the
// sleeper.
void Team::wake_helpers(uint32_t units) {
  const size_t n = std::min<size_t>(helpers_.size(), units - 1);
  for (size_t i = 0; i < n; ++i) helpers_[i]->wake();
}

uint32_t Team::work() {
  const uint32_t share = n_threads_.load(std::memory_order_relaxed) * kChunksPerThread;
  uint32_t done = 0;
  uint64_t unclaimed = unclaimed_.load(std::memory_order_acquire);
  while (const auto left = static_cast<uint32_t>(unclaimed)) {
    const uint32_t count = std::max(1U, left / share);
    // In sequence with the store that opened the job, hence behind all that it says.
    if (!unclaimed_.compare_exchange_weak(unclaimed, unclaimed - count, std::memory_order_acq_rel,
                                          std::memory_order_acquire)) {
      continue;
    }
    function_(context_, offset_ + (units_ - left), count);
    done += count;
    unclaimed = unclaimed_.load(std::memory_order_acquire);
  }
  return done;
}

void Team::help() {
  const uint32_t done = work();
  if (done == 0) return;
  if (undone_.fetch_sub(done, std::memory_order_acq_rel) == (kWaited | done)) futex_wake(undone_);
}

// Sleeping hands a busy core to whoever holds the last chunk.
void Team::wait_for_helpers() {
  const auto is_done = [this] { return undone_.load(std::memory_order_acquire) == 0; };
  if (spin_until(kSpin, is_done)) return;
  uint32_t undone = undone_.fetch_or(kWaited, std::memory_order_acq_rel) | kWaited;
  while (undone != kWaited) {
    futex_wait(undone_, undone);
    undone = undone_.load(std::memory_order_acquire);
  }
}

void Helper::wake() {
  if (!asleep.load() || !asleep.exchange(false)) return;
  alarm.fetch_add(1);
  futex_wake(alarm);
}

void Helper::live() {
  pthread_setname_np(pthread_self(), "mtlqwen-pool");
  flush_denormals();
  while (!stops.load()) {
    Team* current = team.load();
    if (current) current->help();
    const auto is_due = [&] {
      return team.load() != current || (current && current->has_work()) || stops.load();
    };
    if (spin_until(kSpin, is_due)) continue;
    const uint32_t seen = alarm.load();
    asleep.store(true);
    if (!is_due()) futex_wait(alarm, seen);
    asleep.store(false);
  }
}

}  // namespace mtlqwen::hostmetal
