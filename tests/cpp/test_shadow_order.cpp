// hostmetal/msl/shadow/order.h against vector clocks and the full history of every byte.
#include <algorithm>
#include <array>
#include <cstdint>
#include <random>
#include <vector>

#include "check.hpp"
#include "hostmetal/msl/shadow/order.h"

namespace mtlqwen::testing {
namespace {

constexpr uint32_t kSimdgroups = 3;
constexpr uint32_t kLanesUsed = 3;  // of each
constexpr uint32_t kThreads = kSimdgroups * kLanesUsed;
constexpr uint32_t kGroups = 2;

using Clock = std::array<uint32_t, kGroups * kThreads>;

struct Remembered {
  msl::AccessKind kind;
  uint32_t thread;  // over all threadgroups
  uint32_t time;
};

// Threads of some threadgroups, one after the other, that touch one byte and pass barriers.
class Machine {
 public:
  Machine() : segments_(1), passed_(kThreads) { start_group(0); }

  void start_group(uint64_t group) {
    group_ = group;
    passed_.assign(kThreads, {});
    clocks_.assign(kThreads, {});
    for (uint32_t t = 0; t < kThreads; ++t) clocks_[t][global(t)] = 1;
  }

  // Threads first .. first + count - 1 pass a barrier.
  void barrier(uint32_t first, uint32_t count, bool names_memory) {
    Clock all = {};
    for (uint32_t t = first; t < first + count; ++t) {
      for (uint32_t i = 0; i < all.size(); ++i) all[i] = std::max(all[i], clocks_[t][i]);
    }
    for (uint32_t t = first; t < first + count; ++t) {
      if (names_memory) clocks_[t] = all;
      ++clocks_[t][global(t)];
      auto* counts = count == kThreads ? passed_[t].threadgroup : passed_[t].simdgroup;
      counts[msl::kDeviceMemory] += names_memory ? 1 : 0;
    }
  }

  // What the cell finds and what the history holds must agree; true where there is a conflict.
  bool access(uint32_t thread, msl::AccessKind kind) {
    const uint32_t index = thread / kLanesUsed * msl::kLanes + thread % kLanesUsed;
    segments_.push_back({group_, index, passed_[thread]});
    const msl::Access now = {static_cast<uint32_t>(segments_.size() - 1), 0};
    const bool found =
        bool(cell_.conflict(kind, segments_.back(), segments_.data(), msl::kDeviceMemory));
    bool expected = false;
    for (const Remembered& before : history_) {
      const bool both_atomic = msl::is_atomic(kind) && msl::is_atomic(before.kind);
      const bool one_writes = msl::is_write(kind) || msl::is_write(before.kind);
      const bool is_before = clocks_[thread][before.thread] >= before.time;
      expected |= one_writes && !both_atomic && !is_before;
    }
    check_equal(found, expected);
    cell_.add(kind, now, segments_.data(), msl::kDeviceMemory);
    history_.push_back({kind, global(thread), clocks_[thread][global(thread)]});
    return found;
  }

 private:
  uint32_t global(uint32_t thread) const {
    return static_cast<uint32_t>(group_) * kThreads + thread;
  }

  uint64_t group_ = 0;
  std::vector<msl::Segment> segments_;
  std::vector<msl::Passed> passed_;
  std::vector<Clock> clocks_;
  msl::Cell cell_ = {};
  std::vector<Remembered> history_;
};

// Until its first conflict; returns whether there was one.
bool run_once(std::mt19937& random, uint32_t n_steps, const std::vector<msl::AccessKind>& kinds) {
  Machine machine;
  for (uint32_t group = 0; group < kGroups; ++group) {
    machine.start_group(group);
    for (uint32_t step = 0; step < n_steps; ++step) {
      const auto below = [&](uint32_t n) { return static_cast<uint32_t>(random() % n); };
      const uint32_t what = below(8);
      if (what == 0) {
        machine.barrier(0, kThreads, below(4) != 0);
      } else if (what <= 2) {
        machine.barrier(below(kSimdgroups) * kLanesUsed, kLanesUsed, below(4) != 0);
      } else if (machine.access(below(kThreads), kinds[random() % kinds.size()])) {
        return true;
      }
    }
  }
  return false;
}

void test_two_of_a_set_are_enough() {
  using enum msl::AccessKind;
  // Atomic reads beside plain ones are left out: a cell takes them for writes once there is one.
  const std::vector<std::vector<msl::AccessKind>> mixes = {
      {kRead, kRead, kRead, kRead, kRead, kRead, kRead, kWrite},
      {kRead, kRead, kRead, kRead, kRead, kRead, kRead, kAtomicWrite},
      {kAtomicWrite, kAtomicRead, kAtomicWrite, kAtomicRead, kAtomicWrite, kWrite},
      {kRead, kWrite},
      {kRead},
      {kAtomicRead, kAtomicWrite},
  };
  std::mt19937 random(1);
  for (uint32_t mix = 0; mix < mixes.size(); ++mix) {
    uint32_t conflicts = 0;
    for (uint32_t i = 0; i < 20000; ++i) conflicts += run_once(random, 12, mixes[mix]) ? 1 : 0;
    check((conflicts != 0) == (mix < 4));
    check(conflicts < 20000);
  }
}

}  // namespace
}  // namespace mtlqwen::testing

int main() {
  using namespace mtlqwen::testing;
  return run({{"two accesses of a set are enough", test_two_of_a_set_are_enough}});
}
