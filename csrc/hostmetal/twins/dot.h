// Products of int8, at each CPU level. A lane of a WideInts gathers four products of neighbouring
// bytes: of 16 outputs in a panel, of 64 elements of k in a row.
//
// Weights are stored as signed bytes w, or, where the CPU multiplies unsigned by signed, as w + 128
// (kBias); the sum of w x is then that of the products less 128 times that of x.
#pragma once
#if defined(__x86_64__)
#include <immintrin.h>
#else
#include <arm_neon.h>
#endif

#include "wide.h"

namespace mtlqwen::twins {

typedef uint8_t WideBytes __attribute__((ext_vector_type(64), aligned(64)));

#if defined(__AVX512VNNI__)

constexpr int32_t kBias = 128;
constexpr uint32_t kTileRows = 8;  // that a tile keeps in registers

using Weights = __m512i;
using Activations = __m512i;

MTLQWEN_INLINE Weights to_weights(WideBytes bytes) { return (Weights)bytes; }
MTLQWEN_INLINE Activations broadcast4(const int8_t* x) {
  int32_t four;
  __builtin_memcpy(&four, x, sizeof four);
  return _mm512_set1_epi32(four);
}
MTLQWEN_INLINE Activations to_activations(WideBytes bytes) { return (Activations)bytes; }
MTLQWEN_INLINE WideInts multiply(WideInts sums, Weights w, Activations x) {
  return (WideInts)_mm512_dpbusd_epi32((__m512i)sums, w, x);
}

#elif defined(__AVX512BW__)

constexpr int32_t kBias = 0;
constexpr uint32_t kTileRows = 4;  // that a tile keeps in registers

// |w| <= 128 as unsigned, and where w is negative: two products of |w| and +-x fit 16 bits, as |x| is at
// most 127.
struct Weights {
  __m512i magnitude;
  __mmask64 negative;
};
using Activations = __m512i;

MTLQWEN_INLINE Weights to_weights(WideBytes bytes) {
  const auto w = (__m512i)bytes;
  return {_mm512_abs_epi8(w), _mm512_movepi8_mask(w)};
}
MTLQWEN_INLINE Activations broadcast4(const int8_t* x) {
  int32_t four;
  __builtin_memcpy(&four, x, sizeof four);
  return _mm512_set1_epi32(four);
}
MTLQWEN_INLINE Activations to_activations(WideBytes bytes) { return (Activations)bytes; }
MTLQWEN_INLINE WideInts multiply(WideInts sums, Weights w, Activations x) {
  const __m512i signed_x = _mm512_mask_sub_epi8(x, w.negative, _mm512_setzero_si512(), x);
  const __m512i pairs = _mm512_maddubs_epi16(w.magnitude, signed_x);
  return sums + (WideInts)_mm512_madd_epi16(pairs, _mm512_set1_epi16(1));
}

#elif defined(__x86_64__)

constexpr uint32_t kTileRows = 4;  // that a tile keeps in registers

struct Weights {
  __m256i low;
  __m256i high;
};
struct Activations {
  __m256i low;
  __m256i high;
};

MTLQWEN_INLINE __m256i low_half(WideBytes bytes) {
  return (__m256i)__builtin_shufflevector((WideInts)bytes, (WideInts)bytes, 0, 1, 2, 3, 4, 5, 6, 7);
}
MTLQWEN_INLINE __m256i high_half(WideBytes bytes) {
  return (__m256i)__builtin_shufflevector((WideInts)bytes, (WideInts)bytes, 8, 9, 10, 11, 12, 13,
                                          14, 15);
}
typedef int32_t HalfInts __attribute__((ext_vector_type(8)));
MTLQWEN_INLINE WideInts join(__m256i low, __m256i high) {
  return __builtin_shufflevector((HalfInts)low, (HalfInts)high, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10,
                                 11, 12, 13, 14, 15);
}
MTLQWEN_INLINE Weights to_weights(WideBytes bytes) { return {low_half(bytes), high_half(bytes)}; }
MTLQWEN_INLINE Activations to_activations(WideBytes bytes) {
  return {low_half(bytes), high_half(bytes)};
}
MTLQWEN_INLINE Activations broadcast4(const int8_t* x) {
  int32_t four;
  __builtin_memcpy(&four, x, sizeof four);
  const __m256i all = _mm256_set1_epi32(four);
  return {all, all};
}

#if defined(__AVXVNNI__)
constexpr int32_t kBias = 128;

MTLQWEN_INLINE __m256i multiply_half(__m256i sums, __m256i w, __m256i x) {
  return _mm256_dpbusd_avx_epi32(sums, w, x);
}
#else
constexpr int32_t kBias = 0;

// |w| <= 128 as unsigned times +-x, |x| <= 127: two products fit 16 bits.
MTLQWEN_INLINE __m256i multiply_half(__m256i sums, __m256i w, __m256i x) {
  const __m256i pairs = _mm256_maddubs_epi16(_mm256_abs_epi8(w), _mm256_sign_epi8(x, w));
  return _mm256_add_epi32(sums, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
}
#endif

MTLQWEN_INLINE WideInts multiply(WideInts sums, Weights w, Activations x) {
  const WideBytes bytes = (WideBytes)sums;
  return join(multiply_half(low_half(bytes), w.low, x.low),
              multiply_half(high_half(bytes), w.high, x.high));
}

#else  // NEON

constexpr int32_t kBias = 0;
constexpr uint32_t kTileRows = 4;  // that a tile keeps in registers

using Weights = int8x16x4_t;
using Activations = int8x16x4_t;

typedef int8_t Quarter __attribute__((ext_vector_type(16)));
typedef int32_t QuarterInts __attribute__((ext_vector_type(4)));

MTLQWEN_INLINE Weights to_weights(WideBytes bytes) {
  int8x16x4_t parts;
  __builtin_memcpy(&parts, &bytes, sizeof parts);
  return parts;
}
MTLQWEN_INLINE Activations to_activations(WideBytes bytes) { return to_weights(bytes); }
MTLQWEN_INLINE Activations broadcast4(const int8_t* x) {
  int32_t four;
  __builtin_memcpy(&four, x, sizeof four);
  const int8x16_t all = vreinterpretq_s8_s32(vdupq_n_s32(four));
  return {{all, all, all, all}};
}
MTLQWEN_INLINE int32x4_t multiply_quarter(int32x4_t sums, int8x16_t w, int8x16_t x) {
#if defined(__ARM_FEATURE_DOTPROD)
  return vdotq_s32(sums, w, x);
#else
  const int32x4_t low = vpaddlq_s16(vmull_s8(vget_low_s8(w), vget_low_s8(x)));
  const int32x4_t high = vpaddlq_s16(vmull_s8(vget_high_s8(w), vget_high_s8(x)));
  return vaddq_s32(sums, vpaddq_s32(low, high));
#endif
}
MTLQWEN_INLINE WideInts multiply(WideInts sums, Weights w, Activations x) {
  int32x4x4_t parts;
  __builtin_memcpy(&parts, &sums, sizeof parts);
  for (int i = 0; i < 4; ++i) parts.val[i] = multiply_quarter(parts.val[i], w.val[i], x.val[i]);
  __builtin_memcpy(&sums, &parts, sizeof sums);
  return sums;
}

#endif

typedef uint8_t HalfBytes __attribute__((ext_vector_type(32)));

MTLQWEN_INLINE WideBytes join(HalfBytes low, HalfBytes high) {
  return __builtin_shufflevector(low, high, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15,
                                 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31, 32,
                                 33, 34, 35, 36, 37, 38, 39, 40, 41, 42, 43, 44, 45, 46, 47, 48, 49,
                                 50, 51, 52, 53, 54, 55, 56, 57, 58, 59, 60, 61, 62, 63);
}
// `low` in the lanes of the first 32 bytes of a vector of weights, `high` in the others.
MTLQWEN_INLINE Wide halves_of(float low, float high) {
  return __builtin_shufflevector(Wide(low), Wide(high), 0, 1, 2, 3, 4, 5, 6, 7, 24, 25, 26, 27, 28,
                                 29, 30, 31);
}

}  // namespace mtlqwen::twins
