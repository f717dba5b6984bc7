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
// Of what a thread takes at a time. Larger ones make others wait longer for a slow thread; each costs its call.
constexpr uint32_t kPieces = 4;

}  // namespace

void Team::add(Helper* helper) {
  helpers_.push_back(helper);
  n_threads_.store(static_cast<uint32_t>(helpers_.size()) + 1, std::memory_order_relaxed);
  helper->number.store(static_cast<uint32_t>(helpers_.size()), std::memory_order_relaxed);
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
    n_parts_ = std::min(units_, static_cast<uint32_t>(helpers_.size()) + 1);
    undone_.store(units_, std::memory_order_relaxed);
    const uint32_t job = parts_.load(std::memory_order_relaxed).job + 1;
    parts_.store({.job = job, .left = n_parts_});  // opens the job
    wake_helpers(n_parts_ - 1);
    help(0);
    wait_for_helpers();
  }
}

// parts_, Helper::team and Helper::asleep are sequentially consistent: either the sleeper sees the job, or we see the sleeper.
void Team::wake_helpers(uint32_t n) {
  for (uint32_t i = 0; i < n; ++i) helpers_[i]->wake();
}

uint32_t Team::n_rests() const {
  return std::min(n_threads_.load(std::memory_order_relaxed), kMostRests);
}

bool Team::has_work() const {
  if (parts_.load().left != 0) return true;
  const auto is_left = [](const Rest& rest) { return rest.units.load().count() != 0; };
  return std::any_of(rests_.begin(), rests_.begin() + n_rests(), is_left);
}

uint32_t Team::work(uint32_t number) {
  uint32_t done = 0;
  while (true) {
    Units units = take_part();
    if (units.count() == 0) units = steal();
    if (units.count() == 0) return done;
    done += work_through(units, number);
  }
}

Team::Units Team::take_part() {
  Parts parts = parts_.load(std::memory_order_acquire);
  while (parts.left != 0) {
    // In sequence with the store that opened the job, hence behind all that it says.
    if (parts_.compare_exchange_weak(parts, {.job = parts.job, .left = parts.left - 1},
                                     std::memory_order_acq_rel, std::memory_order_acquire)) {
      const uint64_t index = n_parts_ - parts.left;
      return {.first = static_cast<uint32_t>(units_ * index / n_parts_),
              .end = static_cast<uint32_t>(units_ * (index + 1) / n_parts_)};
    }
  }
  return {};
}

Team::Units Team::steal() {
  while (true) {
    std::atomic<Units>* from = nullptr;
    Units most;
    for (uint32_t i = 0; i < n_rests(); ++i) {
      const Units units = rests_[i].units.load(std::memory_order_acquire);
      if (units.count() <= most.count()) continue;
      most = units;
      from = &rests_[i].units;
    }
    if (!from) return {};
    const uint32_t middle = most.first + most.count() / 2;
    if (from->compare_exchange_strong(most, {.first = most.first, .end = middle},
                                      std::memory_order_acq_rel, std::memory_order_relaxed)) {
      return {.first = middle, .end = most.end};
    }
  }
}

// The first piece is taken for good, else two threads could rob each other for ever.
uint32_t Team::work_through(Units units, uint32_t number) {
  const uint32_t piece = (units.count() + kPieces - 1) / kPieces;
  const Units rest{.first = units.first + piece, .end = units.end};
  std::atomic<Units>* own = number < kMostRests ? &rests_[number].units : nullptr;
  // Not empty: a helper that has just left the team still works, under the number of the one after it.
  Units left = own ? own->load(std::memory_order_relaxed) : units;
  if (left.count() != 0 || !own->compare_exchange_strong(left, rest, std::memory_order_acq_rel)) {
    call(units);
    return units.count();
  }
  call({.first = units.first, .end = rest.first});
  uint32_t done = piece;
  left = own->load(std::memory_order_acquire);
  while (left.count() != 0) {
    const uint32_t next = left.first + std::min(left.count(), piece);
    if (!own->compare_exchange_weak(left, {.first = next, .end = left.end},
                                    std::memory_order_acq_rel, std::memory_order_acquire)) {
      continue;
    }
    call({.first = left.first, .end = next});
    done += next - left.first;
    left = own->load(std::memory_order_acquire);
  }
  return done;
}

void Team::help(uint32_t number) {
  const uint32_t done = work(number);
  if (done == 0) return;
  if (undone_.fetch_sub(done, std::memory_order_acq_rel) == (kWaited | done)) futex_wake(undone_);
}

// Sleeping hands a busy core to whoever holds the last piece.
void Team::wait_for_helpers() {
  const auto is_done = [this] { return undone_.load(std::memory_order_acquire) == 0; };
  while (spin_until(kSpin, [&] { return is_done() || has_work(); })) {
    if (is_done()) return;
    help(0);
  }
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
    if (current) current->help(number.load(std::memory_order_relaxed));
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
