#include "hostmetal/faults.hpp"

#include <array>
#include <atomic>

namespace mtlqwen {

namespace {

// By value of Fault: calls until one fails, that one included; 0: none will.
std::array<std::atomic<uint32_t>, 3> countdowns;

std::atomic<uint32_t>& countdown(Fault kind) { return countdowns.at(static_cast<size_t>(kind)); }

}  // namespace

bool inject_fault(Fault kind, uint32_t nth) { return countdown(kind).exchange(nth) != 0; }

bool hostmetal::should_fail(Fault kind) {
  std::atomic<uint32_t>& left = countdown(kind);
  uint32_t before = left.load();
  while (before != 0 && !left.compare_exchange_weak(before, before - 1)) {}
  return before == 1;
}

}  // namespace mtlqwen
