// A few floats that are multiplied and added together, and the loads that make them.
//
// float4 is Metal's. Kernels whose speed on CPU cores matters are templates over the vector and run
// there with Wide: what a core multiplies at once. hostmetal's build of the kernels defines
// MTLQWEN_HOST_VECTORS; Apple's compiler and the strict check never see it, and Wide is float4.
#pragma once
#include <metal_stdlib>
using namespace metal;

// One W from as many elements. The address is a multiple of four elements; of chars only even.
template <typename W>
W load_floats(device const float* from);
template <typename W>
W load_halves(device const half* from);
template <typename W>
W load_bfloats(device const ushort* from);
template <typename W>
W load_chars(device const uchar* from);

template <>
inline float4 load_floats<float4>(device const float* from) {
  return *(device const float4*)from;
}
template <>
inline float4 load_halves<float4>(device const half* from) {
  return float4(*(device const half4*)from);
}
template <>
inline float4 load_bfloats<float4>(device const ushort* from) {
  return as_type<float4>(uint4(*(device const ushort4*)from) << 16);
}
template <>
inline float4 load_chars<float4>(device const uchar* from) {
  device const ushort* pairs = (device const ushort*)from;
  return float4(as_type<char4>(ushort2(pairs[0], pairs[1])));
}

inline void store_floats(device float* to, float4 a) { *(device float4*)to = a; }

inline float4 multiply_add(float4 a, float4 b, float4 c) { return fma(a, b, c); }

// The sum of the elements: halves are added until one is left.
inline float fold(float4 a) {
  const float2 sums = a.xy + a.zw;
  return sums.x + sums.y;
}

// Sums of W that a thread keeps at a time, a power of two. More than its registers hold go to memory
// and back with every addition.
template <typename W>
constexpr uint sums_at_once() {
  return 16;
}

#ifdef MTLQWEN_HOST_VECTORS
// One register of AVX-512, two of AVX2, four of NEON.
#define MTLQWEN_WIDE(NAME, TYPE, ALIGNMENT)                                                        \
  typedef TYPE NAME __attribute__((ext_vector_type(16), aligned(ALIGNMENT)))
// AVX-512 builds split vectors of 512 bits unless a function asks for them.
#define MTLQWEN_WIDE_INLINE inline __attribute__((always_inline, min_vector_width(512)))
MTLQWEN_WIDE(Wide, float, 64);
MTLQWEN_WIDE(WideFloats, float, 4);
MTLQWEN_WIDE(WideHalves, half, 2);
MTLQWEN_WIDE(WideShorts, ushort, 2);
MTLQWEN_WIDE(WideInts, uint, 64);
MTLQWEN_WIDE(WideChars, char, 1);

template <>
MTLQWEN_WIDE_INLINE Wide load_floats<Wide>(device const float* from) {
  return *(device const WideFloats*)from;
}
template <>
MTLQWEN_WIDE_INLINE Wide load_halves<Wide>(device const half* from) {
  return __builtin_convertvector(*(device const WideHalves*)from, Wide);
}
template <>
MTLQWEN_WIDE_INLINE Wide load_bfloats<Wide>(device const ushort* from) {
  return (Wide)(__builtin_convertvector(*(device const WideShorts*)from, WideInts) << 16);
}
template <>
MTLQWEN_WIDE_INLINE Wide load_chars<Wide>(device const uchar* from) {
  return __builtin_convertvector(*(device const WideChars*)from, Wide);
}

template <>
constexpr uint sums_at_once<Wide>() {
  return MTLQWEN_HOST_SUMS;
}

MTLQWEN_WIDE_INLINE void store_floats(device float* to, Wide a) { *(device WideFloats*)to = a; }

MTLQWEN_WIDE_INLINE Wide multiply_add(Wide a, Wide b, Wide c) {
  return __builtin_elementwise_fma(a, b, c);
}

MTLQWEN_WIDE_INLINE float fold(Wide a) {
  for (uint count = 8; count > 0; count /= 2) {
    for (uint i = 0; i < count; i++) a[i] += a[i + count];
  }
  return a[0];
}
// Asks for the cache line of an address that need not exist.
inline void prefetch(device const uchar* address) { __builtin_prefetch(address); }
#else
using Wide = float4;

inline void prefetch(device const uchar*) {}
#endif
