// What the shim and the runtime tell the shadow build about; nothing in the other builds.
#pragma once
#include <stdint.h>

namespace msl {

struct Worker;

#ifdef MSL_SHADOW
constexpr uint32_t kThreadgroupGap = 1024;  // unused bytes around every threadgroup array
constexpr uint32_t kArenaBytes = 4 * 32768;

void shadow_threadgroup(Worker& worker);  // a threadgroup starts
void shadow_array(uint32_t offset, uint32_t bytes);
void shadow_barrier(bool whole_threadgroup, uint32_t mem_flags, uint32_t line);  // passed
void shadow_atomic(const volatile void* at, uint32_t bytes, bool writes);
#else
constexpr uint32_t kThreadgroupGap = 0;
constexpr uint32_t kArenaBytes = 32768;  // MSL_THREADGROUP_BYTES

inline void shadow_threadgroup(Worker&) {}
inline void shadow_array(uint32_t, uint32_t) {}
inline void shadow_barrier(bool, uint32_t, uint32_t) {}
inline void shadow_atomic(const volatile void*, uint32_t, bool) {}
#endif

}  // namespace msl
