// Relaxed atomics: threadgroups of one dispatch run on several OS threads.
#pragma once
#include "../shadow/hooks.h"
#include "integer.h"

namespace metal {

enum memory_order { memory_order_relaxed };

template <class T>
struct atomic {
  T value;
};
typedef atomic<int> atomic_int;
typedef atomic<uint> atomic_uint;
typedef atomic<bool> atomic_bool;
typedef atomic<float> atomic_float;

template <class T>
MSL_INLINE T atomic_load_explicit(const volatile atomic<T>* a, memory_order) {
  msl::shadow_atomic(a, sizeof(T), false);
  return __atomic_load_n(&a->value, __ATOMIC_RELAXED);
}
template <class T>
MSL_INLINE void atomic_store_explicit(volatile atomic<T>* a, detail::as_is<T> value, memory_order) {
  msl::shadow_atomic(a, sizeof(T), true);
  __atomic_store_n(&a->value, value, __ATOMIC_RELAXED);
}
template <class T>
MSL_INLINE T atomic_exchange_explicit(volatile atomic<T>* a, detail::as_is<T> value, memory_order) {
  msl::shadow_atomic(a, sizeof(T), true);
  return __atomic_exchange_n(&a->value, value, __ATOMIC_RELAXED);
}
template <class T>
MSL_INLINE bool atomic_compare_exchange_weak_explicit(volatile atomic<T>* a, T* expected,
                                                      detail::as_is<T> desired, memory_order,
                                                      memory_order) {
  msl::shadow_atomic(a, sizeof(T), true);
  return __atomic_compare_exchange_n(&a->value, expected, desired, true, __ATOMIC_RELAXED,
                                     __ATOMIC_RELAXED);
}

#define MSL_FETCH(name, builtin)                                                                   \
  template <class T>                                                                               \
  MSL_INLINE T atomic_fetch_##name##_explicit(volatile atomic<T>* a, detail::as_is<T> value,       \
                                              memory_order) {                                      \
    msl::shadow_atomic(a, sizeof(T), true);                                                        \
    return builtin(&a->value, value, __ATOMIC_RELAXED);                                            \
  }
MSL_FETCH(add, __atomic_fetch_add)
MSL_FETCH(sub, __atomic_fetch_sub)
MSL_FETCH(and, __atomic_fetch_and)
MSL_FETCH(or, __atomic_fetch_or)
MSL_FETCH(xor, __atomic_fetch_xor)
MSL_FETCH(max, __atomic_fetch_max)
MSL_FETCH(min, __atomic_fetch_min)
#undef MSL_FETCH

}  // namespace metal
