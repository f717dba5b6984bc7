// Finds works of one group that depend on each other although no barrier orders them.
#pragma once
#include <cstdint>
#include <mutex>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "hostmetal/executor.hpp"
#include "hostmetal/write_log.hpp"

namespace mtlqwen::hostmetal {

// Two works that need a barrier between them, or one that does not agree with itself.
struct Hazard {
  enum class Kind : uint8_t { kNone, kBothWrite, kReads, kUnstable };
  Kind kind = Kind::kNone;
  size_t writer = 0;
  size_t other = 0;               // the second writer, or the reader; equal to writer: kUnstable
  const char* address = nullptr;  // a byte that both touch
};

// Runs each work twice: alone on the memory as the group found it, and with what all others of the group write already in
// place. What it writes must not differ, and no two may change one byte. A group without dependencies is never reported; a
// dependency is missed where it happens to change no byte. What stays in memory is the result of all.
class UnorderedGroup {
 public:
  UnorderedGroup(Executor& executor, std::span<const Work> group, std::vector<PageRange> writable,
                 const volatile uint32_t* abort);

  // Stops at the first work that fails and at the first hazard.
  [[nodiscard]] RunResult run();
  [[nodiscard]] const Hazard& hazard() const { return hazard_; }

 private:
  [[nodiscard]] bool run_alone();
  [[nodiscard]] bool run_after_others();
  [[nodiscard]] bool run_one(size_t index, uint64_t seed, Effects& effects);
  [[nodiscard]] bool repeats(size_t index, uint64_t seed);
  void find_double_write();
  void explain(size_t reader);
  [[nodiscard]] const char* find_byte(size_t reader, const Effects& written);

  Executor& executor_;
  const std::span<const Work> group_;
  const volatile uint32_t* const abort_;
  WriteLog log_;
  std::vector<Effects> alone_;  // by work
  RunResult result_;
  Hazard hazard_;
};

// Which groups are worth the check: one of the same kernels, grids and bindings nearly always has the same dependencies, so
// that the first few are checked, and now and then one more. Thread safe.
class GroupSampler {
 public:
  [[nodiscard]] bool is_due(std::span<const Work> group);

 private:
  std::mutex mutex_;
  std::unordered_map<uint64_t, uint32_t> n_seen_;
};

}  // namespace mtlqwen::hostmetal
