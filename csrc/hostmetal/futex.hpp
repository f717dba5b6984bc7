// Waiting for another thread: a spin of a few microseconds, then the operating system.
#pragma once
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdint>

#include "hostmetal/cpu.hpp"

namespace mtlqwen::hostmetal {

static_assert(sizeof(std::atomic<uint32_t>) == sizeof(uint32_t), "a futex is 32 bits");

inline void futex_wait(std::atomic<uint32_t>& word, uint32_t expected) {
  syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, expected, nullptr, nullptr, 0);
}

inline void futex_wake(std::atomic<uint32_t>& word) {
  syscall(SYS_futex, &word, FUTEX_WAKE_PRIVATE, 1, nullptr, nullptr, 0);
}

// True as soon as done() is; false after `limit`.
template <class Done>
bool spin_until(std::chrono::microseconds limit, const Done& done) {
  constexpr uint32_t kSpinsPerLook = 64;  // between looks at the clock
  const auto end = std::chrono::steady_clock::now() + limit;
  do {
    for (uint32_t i = 0; i < kSpinsPerLook; ++i) {
      if (done()) return true;
      spin_pause();
    }
  } while (std::chrono::steady_clock::now() < end);
  return false;
}

}  // namespace mtlqwen::hostmetal
