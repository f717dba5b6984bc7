// A kernel library written in C++, in this process: what the software device's tests dispatch, without a compiler of
// kernels. A kernel is called once for each threadgroup.
#pragma once
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <functional>
#include <thread>

#include "hostmetal/cpu.hpp"
#include "hostmetal/msl/abi.h"

namespace mtlqwen::testing {

struct Threadgroup {
  const MslDispatch* dispatch;
  uint64_t index;  // x fastest

  template <class T>
  [[nodiscard]] T* buffer(uint32_t n) const {
    return static_cast<T*>(dispatch->buffers[n]);
  }
  template <class T>
  [[nodiscard]] T constant(uint32_t n) const {
    T value;
    std::memcpy(&value, &dispatch->constants[n], sizeof value);
    return value;
  }
};

using FakeKernel = const char* (*)(const Threadgroup& group);  // null, or what went wrong

inline const char* empty_kernel(const Threadgroup& /*group*/) { return nullptr; }

// counts[index] += 1
inline const char* count_kernel(const Threadgroup& group) {
  ++group.buffer<uint32_t>(0)[group.index];
  return nullptr;
}

// out[index] = in[index] * kScale + kOffset
inline const char* scale_kernel(const Threadgroup& group) {
  group.buffer<float>(0)[group.index] =
      group.buffer<float>(1)[group.index] * group.constant<float>(3) +
      static_cast<float>(group.constant<int32_t>(5));
  return nullptr;
}

// out[0] += in[0], slowly: loses updates where dispatches overlap that a barrier should order
inline const char* add_slowly_kernel(const Threadgroup& group) {
  auto* sum = group.buffer<volatile uint64_t>(0);
  const uint64_t before = *sum;
  std::this_thread::sleep_for(std::chrono::microseconds(20));
  *sum = before + group.buffer<uint64_t>(1)[0];
  return nullptr;
}

// Waits until both of two threadgroups, of any dispatches, are inside. meeting[0] counts them; meeting[1] the failures.
inline const char* meet_kernel(const Threadgroup& group) {
  auto* arrived = group.buffer<uint32_t>(0);
  __atomic_fetch_add(arrived, 1, __ATOMIC_ACQ_REL);
  for (int i = 0; i < 2000; ++i) {
    if (__atomic_load_n(arrived, __ATOMIC_ACQUIRE) >= 2) return nullptr;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  __atomic_fetch_add(arrived + 1, 1, __ATOMIC_ACQ_REL);
  return nullptr;
}

inline const char* nap_kernel(const Threadgroup& /*group*/) {
  std::this_thread::sleep_for(std::chrono::milliseconds(2));
  return nullptr;
}

// count[0] += 1, for whoever watches it grow, once a millisecond
inline const char* tick_kernel(const Threadgroup& group) {
  __atomic_fetch_add(group.buffer<uint32_t>(0), 1, __ATOMIC_RELAXED);
  std::this_thread::sleep_for(std::chrono::milliseconds(1));
  return nullptr;
}

inline const char* fail_kernel(const Threadgroup& group) {
  return group.index == 3 ? "barrier reached by 7 of 32 threads" : nullptr;
}

// out[index] = 1e-40 * 1 as bits: 0 where denormals are flushed
inline const char* denormal_kernel(const Threadgroup& group) {
  volatile float tiny = 1e-40F;
  volatile float one = 1.0F;
  group.buffer<float>(0)[group.index] = tiny * one;
  std::this_thread::sleep_for(std::chrono::microseconds(50));  // lets other threads take a share
  return nullptr;
}

// out[index] = in[index]
inline const char* copy_word_kernel(const Threadgroup& group) {
  group.buffer<uint32_t>(0)[group.index] = group.buffer<uint32_t>(1)[group.index];
  return nullptr;
}

// Writes in front of its buffer, further with every threadgroup, and far away.
inline const char* copy_back_kernel(const Threadgroup& group) {
  *(group.buffer<volatile uint32_t>(0) - 4096 - group.index) = 1;
  return nullptr;
}
inline volatile uint64_t nowhere = 64;
// Each threadgroup its own place, lest they race.
inline const char* copy_nowhere_kernel(const Threadgroup& group) {
  *reinterpret_cast<volatile uint32_t*>(nowhere + 4 * group.index) = 1;
  return nullptr;
}

// out[0] = a number that tells the order of the threadgroups
inline const char* fold_kernel(const Threadgroup& group) {
  auto* sum = group.buffer<uint32_t>(0);
  const uint32_t before = __atomic_load_n(sum, __ATOMIC_RELAXED);
  __atomic_store_n(sum, before * 31 + static_cast<uint32_t>(group.index) + 1, __ATOMIC_RELAXED);
  return nullptr;
}

// Says 1 to another thread, and waits for its 2.
inline const char* hold_kernel(const Threadgroup& group) {
  auto* gate = group.buffer<uint32_t>(0);
  __atomic_store_n(gate, 1, __ATOMIC_RELEASE);
  while (__atomic_load_n(gate, __ATOMIC_ACQUIRE) != 2) std::this_thread::yield();
  return nullptr;
}

// threads[index] = a number of the thread that runs it
inline const char* thread_kernel(const Threadgroup& group) {
  group.buffer<uint64_t>(0)[group.index] = std::hash<std::thread::id>()(std::this_thread::get_id());
  return nullptr;
}

inline int run_fake(const MslDispatch* dispatch, uint64_t first, uint64_t count, char* error,
                    uint64_t error_bytes) {
  const auto kernel = reinterpret_cast<FakeKernel>(const_cast<void*>(dispatch->kernel->entry));
  for (uint64_t i = first; i < first + count; ++i) {
    if (__atomic_load_n(dispatch->abort, __ATOMIC_RELAXED) != 0) return MSL_ABORTED;
    const char* problem = kernel({.dispatch = dispatch, .index = i});
    if (problem) {
      std::snprintf(error, error_bytes, "%s", problem);
      return MSL_FAILED;
    }
  }
  return MSL_OK;
}

inline const MslLibrary* fake_library() {
  static const MslConstant scale_constants[] = {{3, 3, "kScale"}, {5, 29, "kOffset"}};
  const auto entry = [](FakeKernel kernel) { return reinterpret_cast<const void*>(kernel); };
  static const MslKernel kernels[] = {
      // none has a twin
      {"empty", 0b0, 0, 0, nullptr, entry(empty_kernel), nullptr, nullptr},
      {"count", 0b1, 0, 0, nullptr, entry(count_kernel), nullptr, nullptr},
      {"scale", 0b11, 0, 2, scale_constants, entry(scale_kernel), nullptr, nullptr},
      {"add_slowly", 0b11, 0, 0, nullptr, entry(add_slowly_kernel), nullptr, nullptr},
      {"meet", 0b1, 0, 0, nullptr, entry(meet_kernel), nullptr, nullptr},
      {"nap", 0b0, 0, 0, nullptr, entry(nap_kernel), nullptr, nullptr},
      {"tick", 0b1, 0, 0, nullptr, entry(tick_kernel), nullptr, nullptr},
      {"fail", 0b0, 0, 0, nullptr, entry(fail_kernel), nullptr, nullptr},
      {"denormal", 0b1, 0, 0, nullptr, entry(denormal_kernel), nullptr, nullptr},
      {"scratch", 0b0, 1, 0, nullptr, entry(empty_kernel), nullptr, nullptr},
      {"copy_word", 0b11, 0, 0, nullptr, entry(copy_word_kernel), nullptr, nullptr},
      {"copy_back", 0b1, 0, 0, nullptr, entry(copy_back_kernel), nullptr, nullptr},
      {"copy_nowhere", 0b1, 0, 0, nullptr, entry(copy_nowhere_kernel), nullptr, nullptr},
      {"fold", 0b1, 0, 0, nullptr, entry(fold_kernel), nullptr, nullptr},
      {"thread", 0b1, 0, 0, nullptr, entry(thread_kernel), nullptr, nullptr},
      {"hold", 0b11, 0, 0, nullptr, entry(hold_kernel), nullptr, nullptr},
  };
  static const MslLibrary library = {MSL_ABI_VERSION, "avx2", sizeof kernels / sizeof kernels[0],
                                     kernels, run_fake};
  return &library;
}

}  // namespace mtlqwen::testing
