// min, max, clamp, abs, select, and the bit functions.
#pragma once
#include "floating.h"

namespace metal {

#define MSL_INTEGER_ORDER(T)                                                                       \
  MSL_INLINE T max(T a, T b) { return a < b ? b : a; }                                             \
  MSL_INLINE T min(T a, T b) { return b < a ? b : a; }                                             \
  MSL_INLINE T clamp(T x, T low, T high) { return x < low ? low : high < x ? high : x; }
// As Metal's: of a NaN and a number, the number.
#define MSL_FLOAT_ORDER(T)                                                                         \
  MSL_INLINE T max(T a, T b) { return fmax(a, b); }                                                \
  MSL_INLINE T min(T a, T b) { return fmin(a, b); }                                                \
  MSL_INLINE T clamp(T x, T low, T high) { return fmin(fmax(x, low), high); }
MSL_INTEGER_ORDER(char)
MSL_INTEGER_ORDER(signed char)
MSL_INTEGER_ORDER(uchar)
MSL_INTEGER_ORDER(short)
MSL_INTEGER_ORDER(ushort)
MSL_INTEGER_ORDER(int)
MSL_INTEGER_ORDER(uint)
MSL_INTEGER_ORDER(long)
MSL_INTEGER_ORDER(ulong)
MSL_FLOAT_ORDER(float)
MSL_FLOAT_ORDER(half)
MSL_FLOAT_ORDER(bfloat)
#undef MSL_INTEGER_ORDER
#undef MSL_FLOAT_ORDER

#define MSL_ORDER_VEC(name)                                                                        \
  template <class T, int N>                                                                        \
  MSL_INLINE vec<T, N> name(vec<T, N> a, vec<T, N> b) {                                            \
    for (int i = 0; i < N; ++i) a.lanes[i] = name((T)a.lanes[i], (T)b.lanes[i]);                   \
    return a;                                                                                      \
  }                                                                                                \
  template <class T, int N, class U, enable_if_t<detail::is_scalar<U>, int> = 0>                   \
  MSL_INLINE vec<T, N> name(vec<T, N> a, U b) {                                                    \
    return name(a, vec<T, N>(b));                                                                  \
  }
MSL_ORDER_VEC(max)
MSL_ORDER_VEC(min)
#undef MSL_ORDER_VEC

template <class T, int N>
MSL_INLINE vec<T, N> clamp(vec<T, N> x, detail::as_is<vec<T, N>> low,
                           detail::as_is<vec<T, N>> high) {
  return min(max(x, low), high);
}
template <class T>
MSL_INLINE T max3(T a, T b, T c) {
  return max(max(a, b), c);
}
template <class T>
MSL_INLINE T min3(T a, T b, T c) {
  return min(min(a, b), c);
}

#define MSL_ABS(T)                                                                                 \
  MSL_INLINE T abs(T x) { return x < 0 ? (T) - x : x; }
MSL_ABS(char)
MSL_ABS(short)
MSL_ABS(int)
MSL_ABS(long)
#undef MSL_ABS
MSL_INLINE float abs(float x) { return fabs(x); }
MSL_INLINE half abs(half x) { return fabs(x); }
MSL_INLINE bfloat abs(bfloat x) { return fabs(x); }
template <class T, int N>
MSL_INLINE vec<T, N> abs(vec<T, N> a) {
  for (int i = 0; i < N; ++i) a.lanes[i] = abs((T)a.lanes[i]);
  return a;
}

// select(a, b, c) is c ? b : a.
template <class T, enable_if_t<detail::is_scalar<T>, int> = 0>
MSL_INLINE T select(T a, detail::as_is<T> b, bool c) {
  return c ? b : a;
}
template <class T, int N>
MSL_INLINE vec<T, N> select(vec<T, N> a, detail::as_is<vec<T, N>> b, vec<bool, N> c) {
  for (int i = 0; i < N; ++i) a.lanes[i] = c.lanes[i] ? b.lanes[i] : a.lanes[i];
  return a;
}
template <class T, int N>
MSL_INLINE vec<T, N> select(vec<T, N> a, detail::as_is<vec<T, N>> b, bool c) {
  return c ? b : a;
}

template <class T, enable_if_t<is_integral_v<T>, int> = 0>
MSL_INLINE T popcount(T x) {
  return (T)__builtin_popcountl((ulong)(make_unsigned_t<T>)x);
}
template <class T, enable_if_t<is_integral_v<T>, int> = 0>
MSL_INLINE T clz(T x) {
  const int bits = 8 * sizeof(T);
  return x == 0 ? (T)bits : (T)(__builtin_clzl((ulong)(make_unsigned_t<T>)x) - (64 - bits));
}
template <class T, enable_if_t<is_integral_v<T>, int> = 0>
MSL_INLINE T ctz(T x) {
  return x == 0 ? (T)(8 * sizeof(T)) : (T)__builtin_ctzl((ulong)(make_unsigned_t<T>)x);
}
MSL_INLINE uint reverse_bits(uint x) { return __builtin_bitreverse32(x); }
MSL_INLINE uint rotate(uint x, uint n) { return x << (n & 31) | x >> (-n & 31); }
MSL_INLINE uint mulhi(uint a, uint b) { return (uint)((ulong)a * b >> 32); }
MSL_INLINE int mulhi(int a, int b) { return (int)((long)a * b >> 32); }
MSL_INLINE uint extract_bits(uint x, uint offset, uint bits) {
  return bits >= 32 ? x >> offset : x >> offset & ((1u << bits) - 1);
}
MSL_INLINE int extract_bits(int x, uint offset, uint bits) {
  return bits == 0 ? 0 : x << (32 - offset - bits) >> (32 - bits);
}

}  // namespace metal
