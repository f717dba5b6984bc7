// simdgroup_matrix<T, 8, 8>: two neighbours of a row in each lane. The lane map is that of Apple's
// GPUs (MLX relies on it).
#pragma once
#include "simd.h"

namespace metal {
namespace detail {

MSL_INLINE uint matrix_row(uint lane) { return (lane >> 2 & 4) + (lane >> 1 & 3); }
MSL_INLINE uint matrix_column(uint lane) { return (lane >> 2 & 2) * 2 + (lane & 1) * 2; }

// The slots hold A, then B (64 floats each, row-major); A times B takes the place of A.
__attribute__((noinline)) inline void multiply(msl::Simdgroup& group) {
  typedef float Row __attribute__((ext_vector_type(8)));
  float* a = (float*)group.slots;
  const Row* b = (const Row*)(a + 64);
  Row* product = (Row*)a;
#pragma unroll
  for (int r = 0; r < 8; ++r) {
    const float* row = a + r * 8;
    Row even = (Row)row[0] * b[0], odd = (Row)row[1] * b[1];
#pragma unroll
    for (int k = 2; k < 8; k += 2) {
      even += (Row)row[k] * b[k];
      odd += (Row)row[k + 1] * b[k + 1];
    }
    product[r] = even + odd;
  }
}

}  // namespace detail

template <class T, int C, int R>
struct simdgroup_matrix {
  static_assert(C == 8 && R == 8 && is_floating_point_v<T>, "8x8 of float, half or bfloat");
  typedef vec<T, 2> storage_type;
  vec<T, 2> elements;
  simdgroup_matrix() = default;
  MSL_INLINE explicit simdgroup_matrix(T diagonal) {
    const uint lane = detail::lane_index();
    const uint row = detail::matrix_row(lane), column = detail::matrix_column(lane);
    elements = vec<T, 2>(row == column ? diagonal : (T)0, row == column + 1 ? diagonal : (T)0);
  }
  MSL_INLINE vec<T, 2>& thread_elements() { return elements; }
  MSL_INLINE const vec<T, 2>& thread_elements() const { return elements; }
};
typedef simdgroup_matrix<float, 8, 8> simdgroup_float8x8;
typedef simdgroup_matrix<half, 8, 8> simdgroup_half8x8;
typedef simdgroup_matrix<bfloat, 8, 8> simdgroup_bfloat8x8;

template <class T, int C = 8, int R = 8>
MSL_INLINE simdgroup_matrix<T, C, R> make_filled_simdgroup_matrix(T value) {
  simdgroup_matrix<T, C, R> result;
  result.elements = vec<T, 2>(value);
  return result;
}

// `origin` is (column, row).
template <class T>
MSL_INLINE void simdgroup_load(simdgroup_matrix<T, 8, 8>& m, const T* from, ulong stride = 8,
                               ulong2 origin = ulong2(0), bool transposed = false) {
  const uint lane = detail::lane_index();
  const ulong row = detail::matrix_row(lane), column = detail::matrix_column(lane);
  from += origin.lanes[1] * stride + origin.lanes[0];
  const T* at = transposed ? from + column * stride + row : from + row * stride + column;
  m.elements.lanes[0] = at[0];
  m.elements.lanes[1] = at[transposed ? stride : 1];
}
template <class T>
MSL_INLINE void simdgroup_store(simdgroup_matrix<T, 8, 8> m, T* to, ulong stride = 8,
                                ulong2 origin = ulong2(0), bool transposed = false) {
  const uint lane = detail::lane_index();
  const ulong row = detail::matrix_row(lane), column = detail::matrix_column(lane);
  to += origin.lanes[1] * stride + origin.lanes[0];
  T* at = transposed ? to + column * stride + row : to + row * stride + column;
  at[0] = m.elements.lanes[0];
  at[transposed ? stride : 1] = m.elements.lanes[1];
}

namespace detail {
template <class A, class B>
MSL_INLINE float2 product(const simdgroup_matrix<A, 8, 8>& a, const simdgroup_matrix<B, 8, 8>& b,
                          uint line) {
  const msl::Fiber* me = msl::current;
  const uint at = matrix_row(me->lane) * 8 + matrix_column(me->lane);
  float* slots = (float*)me->simdgroup->slots + at;
  slots[0] = (float)a.elements.lanes[0];
  slots[1] = (float)a.elements.lanes[1];
  slots[64] = (float)b.elements.lanes[0];
  slots[65] = (float)b.elements.lanes[1];
  msl::meet(msl::make_site(line, msl::kMatrix), multiply);
  return float2(slots[0], slots[1]);
}
}  // namespace detail

// d = a b + c. The product is exact and summed in float; a half or bfloat d is rounded once.
template <class D, class A, class B, class C>
MSL_INLINE void simdgroup_multiply_accumulate(simdgroup_matrix<D, 8, 8>& d,
                                              const simdgroup_matrix<A, 8, 8>& a,
                                              const simdgroup_matrix<B, 8, 8>& b,
                                              const simdgroup_matrix<C, 8, 8>& c, MSL_LINE) {
  const float2 p = detail::product(a, b, line);
  d.elements.lanes[0] = (D)(p.lanes[0] + (float)c.elements.lanes[0]);
  d.elements.lanes[1] = (D)(p.lanes[1] + (float)c.elements.lanes[1]);
}
template <class D, class A, class B>
MSL_INLINE void simdgroup_multiply(simdgroup_matrix<D, 8, 8>& d, const simdgroup_matrix<A, 8, 8>& a,
                                   const simdgroup_matrix<B, 8, 8>& b, MSL_LINE) {
  const float2 p = detail::product(a, b, line);
  d.elements.lanes[0] = (D)p.lanes[0];
  d.elements.lanes[1] = (D)p.lanes[1];
}

}  // namespace metal
