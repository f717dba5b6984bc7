// Declarations of the functions that need a running simdgroup: simd.h, simdgroup_matrix.h and
// atomic.h without their bodies, for each address space that Metal has them for.
#pragma once
#include "integer.h"

#define MSL_DEVICE __attribute__((opencl_global_device))
#define MSL_CONSTANT __attribute__((opencl_global_host))

namespace metal {

enum class mem_flags { mem_none = 0, mem_device = 1, mem_threadgroup = 2, mem_texture = 4 };
MSL_INLINE constexpr mem_flags operator|(mem_flags a, mem_flags b) {
  return (mem_flags)((int)a | (int)b);
}
void threadgroup_barrier(mem_flags);
void simdgroup_barrier(mem_flags);

// Metal's simd functions take numbers and vectors of numbers, but no bool.
namespace detail {
template <class T>
constexpr bool crosses_lanes = is_arithmetic_v<T> && !is_same_v<T, bool>;
template <class T, int N>
constexpr bool crosses_lanes<vec<T, N>> = crosses_lanes<T>;
template <class T>
using if_crosses_lanes = enable_if_t<crosses_lanes<T>, int>;
}  // namespace detail

#define MSL_DECLARE(name, ...)                                                                     \
  template <class T, detail::if_crosses_lanes<T> = 0>                                              \
  T name(T value, ##__VA_ARGS__);
#define MSL_DECLARE_BOTH(name) MSL_DECLARE(simd_##name) MSL_DECLARE(quad_##name)
MSL_DECLARE_BOTH(sum)
MSL_DECLARE_BOTH(product)
MSL_DECLARE_BOTH(max)
MSL_DECLARE_BOTH(min)
MSL_DECLARE_BOTH(and)
MSL_DECLARE_BOTH(or)
MSL_DECLARE_BOTH(xor)
MSL_DECLARE(simd_prefix_inclusive_sum)
MSL_DECLARE(simd_prefix_exclusive_sum)
MSL_DECLARE(simd_broadcast_first)
MSL_DECLARE(simd_shuffle, ushort lane)
MSL_DECLARE(simd_broadcast, ushort lane)
MSL_DECLARE(simd_shuffle_xor, ushort mask)
MSL_DECLARE(simd_shuffle_up, ushort delta)
MSL_DECLARE(simd_shuffle_down, ushort delta)
MSL_DECLARE(simd_shuffle_rotate_up, ushort delta)
MSL_DECLARE(simd_shuffle_rotate_down, ushort delta)
MSL_DECLARE(simd_shuffle_and_fill_up, T fill, ushort delta)
MSL_DECLARE(simd_shuffle_and_fill_down, T fill, ushort delta)
MSL_DECLARE(quad_shuffle, ushort lane)
MSL_DECLARE(quad_broadcast, ushort lane)
MSL_DECLARE(quad_shuffle_xor, ushort mask)
#undef MSL_DECLARE
#undef MSL_DECLARE_BOTH

struct simd_vote {
  typedef ulong vote_t;
  uint mask;
  explicit simd_vote(ulong votes = 0);
  explicit operator ulong() const;
  bool all() const;
  bool any() const;
};
simd_vote simd_ballot(bool vote);
bool simd_any(bool vote);
bool simd_all(bool vote);
bool simd_is_first();

template <class T, int C, int R>
struct simdgroup_matrix {
  static_assert(C == 8 && R == 8 && is_floating_point_v<T>, "8x8 of float, half or bfloat");
  typedef vec<T, 2> storage_type;
  vec<T, 2> elements;
  simdgroup_matrix() = default;
  explicit simdgroup_matrix(T diagonal);
  __private vec<T, 2>& thread_elements() __private;
};
typedef simdgroup_matrix<float, 8, 8> simdgroup_float8x8;
typedef simdgroup_matrix<half, 8, 8> simdgroup_half8x8;
typedef simdgroup_matrix<bfloat, 8, 8> simdgroup_bfloat8x8;

template <class T, int C = 8, int R = 8>
simdgroup_matrix<T, C, R> make_filled_simdgroup_matrix(T value);

#define MSL_DECLARE_LOAD(space)                                                                    \
  template <class T>                                                                               \
  void simdgroup_load(__private simdgroup_matrix<T, 8, 8>& m, space const T* from,                 \
                      ulong stride = 8, ulong2 origin = ulong2(0), bool transposed = false);
#define MSL_DECLARE_STORE(space)                                                                   \
  template <class T>                                                                               \
  void simdgroup_store(simdgroup_matrix<T, 8, 8> m, space T* to, ulong stride = 8,                 \
                       ulong2 origin = ulong2(0), bool transposed = false);
MSL_DECLARE_LOAD(MSL_DEVICE)
MSL_DECLARE_LOAD(MSL_CONSTANT)
MSL_DECLARE_LOAD(__local)
MSL_DECLARE_STORE(MSL_DEVICE)
MSL_DECLARE_STORE(__local)
#undef MSL_DECLARE_LOAD
#undef MSL_DECLARE_STORE

template <class D, class A, class B, class C>
void simdgroup_multiply_accumulate(__private simdgroup_matrix<D, 8, 8>& d,
                                   simdgroup_matrix<A, 8, 8> a, simdgroup_matrix<B, 8, 8> b,
                                   simdgroup_matrix<C, 8, 8> c);
template <class D, class A, class B>
void simdgroup_multiply(__private simdgroup_matrix<D, 8, 8>& d, simdgroup_matrix<A, 8, 8> a,
                        simdgroup_matrix<B, 8, 8> b);

enum memory_order { memory_order_relaxed };

template <class T>
struct atomic {
  T value;
};

#define MSL_DECLARE_FETCH(space, name)                                                             \
  template <class T>                                                                               \
  T atomic_##name##_explicit(space volatile atomic<T>* a, detail::as_is<T> value, memory_order);
#define MSL_DECLARE_ATOMICS(space)                                                                 \
  template <class T>                                                                               \
  T atomic_load_explicit(space const volatile atomic<T>* a, memory_order);                         \
  template <class T>                                                                               \
  void atomic_store_explicit(space volatile atomic<T>* a, detail::as_is<T> value, memory_order);   \
  template <class T>                                                                               \
  bool atomic_compare_exchange_weak_explicit(space volatile atomic<T>* a, __private T* expected,   \
                                             detail::as_is<T> desired, memory_order,               \
                                             memory_order);                                        \
  MSL_DECLARE_FETCH(space, exchange)                                                               \
  MSL_DECLARE_FETCH(space, fetch_add)                                                              \
  MSL_DECLARE_FETCH(space, fetch_sub)                                                              \
  MSL_DECLARE_FETCH(space, fetch_and)                                                              \
  MSL_DECLARE_FETCH(space, fetch_or)                                                               \
  MSL_DECLARE_FETCH(space, fetch_xor)                                                              \
  MSL_DECLARE_FETCH(space, fetch_max)                                                              \
  MSL_DECLARE_FETCH(space, fetch_min)
MSL_DECLARE_ATOMICS(MSL_DEVICE)
MSL_DECLARE_ATOMICS(__local)
#undef MSL_DECLARE_ATOMICS
#undef MSL_DECLARE_FETCH

}  // namespace metal

// C++ for OpenCL has atomic types of these names.
#define atomic_int metal::atomic<int>
#define atomic_uint metal::atomic<uint>
#define atomic_bool metal::atomic<bool>
#define atomic_float metal::atomic<float>
