// What the compiler's -fsanitize=thread makes a kernel call before each access, and what the shim
// and the runtime call. The sanitizer's own runtime is not linked.
#include <string.h>

#include "hooks.h"
#include "state.h"

namespace msl {

void shadow_threadgroup(Worker&) {
  if (shadow) shadow->start_threadgroup();
}

void shadow_array(uint32_t offset, uint32_t bytes) {
  if (shadow) shadow->add_array(current->simdgroup->worker->arena + offset, bytes);
}

void shadow_barrier(bool whole_threadgroup, uint32_t mem_flags, uint32_t line) {
  if (shadow) shadow->pass_barrier(whole_threadgroup, mem_flags, line);
}

void shadow_atomic(const volatile void* at, uint32_t bytes, bool writes) {
  if (!shadow) return;
  shadow->access((const char*)at, bytes, writes ? kAtomicWrite : kAtomicRead,
                 __builtin_return_address(0));
}

namespace {

inline void watch(const void* at, uint64_t bytes, AccessKind kind, const void* place) {
  if (shadow && bytes != 0) shadow->access((const char*)at, bytes, kind, place);
}

}  // namespace

extern "C" {

#define MSL_CALLBACK(name, bytes, kind)                                                            \
  void __tsan_##name(const void* at) { watch(at, bytes, kind, __builtin_return_address(0)); }
#define MSL_CALLBACKS(bytes)                                                                       \
  MSL_CALLBACK(read##bytes, bytes, kRead)                                                          \
  MSL_CALLBACK(write##bytes, bytes, kWrite)                                                        \
  MSL_CALLBACK(unaligned_read##bytes, bytes, kRead)                                                \
  MSL_CALLBACK(unaligned_write##bytes, bytes, kWrite)
MSL_CALLBACKS(1)
MSL_CALLBACKS(2)
MSL_CALLBACKS(4)
MSL_CALLBACKS(8)
MSL_CALLBACKS(16)
#undef MSL_CALLBACKS
#undef MSL_CALLBACK

void* __tsan_memcpy(void* to, const void* from, uint64_t bytes) {
  watch(from, bytes, kRead, __builtin_return_address(0));
  watch(to, bytes, kWrite, __builtin_return_address(0));
  return memcpy(to, from, bytes);
}
void* __tsan_memmove(void* to, const void* from, uint64_t bytes) {
  watch(from, bytes, kRead, __builtin_return_address(0));
  watch(to, bytes, kWrite, __builtin_return_address(0));
  return memmove(to, from, bytes);
}
void* __tsan_memset(void* to, int value, uint64_t bytes) {
  watch(to, bytes, kWrite, __builtin_return_address(0));
  return memset(to, value, bytes);
}

void __tsan_init() {}
void __tsan_func_entry(const void* place) {
  if (shadow) shadow->enter(place);
}
void __tsan_func_exit() {
  if (shadow) shadow->leave();
}

}  // extern "C"
}  // namespace msl
