// Products of int16 activations with weights widened to int16, at each CPU level. A lane of sums
// gathers two products: of neighbouring elements of k. |w| <= 128: 32 products fit 32 bits.
#pragma once
#if defined(__x86_64__)
#include <immintrin.h>
#else
#include <arm_neon.h>
#endif

#include "wide.h"

namespace mtlqwen::twins {

typedef int16_t Pairs __attribute__((ext_vector_type(32), aligned(64)));
typedef int16_t LoosePairs __attribute__((ext_vector_type(32), aligned(2)));
typedef int32_t HalfInts __attribute__((ext_vector_type(8), aligned(32)));
typedef int16_t HalfPairs __attribute__((ext_vector_type(16), aligned(32)));

// The rows that share a vector of weights in memory: their sums and the vector fill the registers,
// their totals cost less in memory than weights loaded twice.
#if defined(__AVX512BW__)
constexpr uint32_t kTileRows = 8;
#elif defined(__x86_64__)
constexpr uint32_t kTileRows = 6;
#else
constexpr uint32_t kTileRows = 3;
#endif
// The rows up to which weights are used as they are unpacked. More of them keep vectors that have
// room for two tiles busy longer than a panel is stored and loaded.
#if defined(__AVX512BW__)
constexpr uint32_t kColumnRows = 16;
#else
constexpr uint32_t kColumnRows = kTileRows;
#endif
// Sums of a row in multiply_column() of kRows rows: with one, the products of eight rows wait for
// one another.
#if defined(__AVX512VNNI__)
template <uint32_t kRows>
constexpr uint32_t kChains = kRows <= 8 ? 2 : 1;
#else
template <uint32_t kRows>
constexpr uint32_t kChains = 1;
#endif
constexpr uint32_t kUnpackRows = 8;  // whose products take as long as unpacking their panel

#if defined(__AVX512BW__)

MTLQWEN_INLINE WideInts multiply(WideInts sums, Pairs w, Pairs x) {
#if defined(__AVX512VNNI__)
  return (WideInts)_mm512_dpwssd_epi32((__m512i)sums, (__m512i)w, (__m512i)x);
#else
  return sums + (WideInts)_mm512_madd_epi16((__m512i)w, (__m512i)x);
#endif
}

#elif defined(__x86_64__)

MTLQWEN_INLINE HalfInts multiply_half(HalfInts sums, HalfPairs w, HalfPairs x) {
#if defined(__AVXVNNI__)
  return (HalfInts)_mm256_dpwssd_avx_epi32((__m256i)sums, (__m256i)w, (__m256i)x);
#else
  // In this order: the compiler would finish one row after the other, with the weights in memory.
  sums += (HalfInts)_mm256_madd_epi16((__m256i)w, (__m256i)x);
  asm volatile("" : "+x"(sums));
  return sums;
#endif
}
MTLQWEN_INLINE WideInts multiply(WideInts sums, Pairs w, Pairs x) {
  const HalfInts low = multiply_half(sums.lo, w.lo, x.lo);
  const HalfInts high = multiply_half(sums.hi, w.hi, x.hi);
  return __builtin_shufflevector(low, high, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
}

#else  // NEON

MTLQWEN_INLINE int32x4_t multiply_quarter(int32x4_t sums, int16x8_t w, int16x8_t x) {
  const int32x4_t low = vmull_s16(vget_low_s16(w), vget_low_s16(x));
  const int32x4_t high = vmull_high_s16(w, x);
  return vaddq_s32(sums, vpaddq_s32(low, high));
}
MTLQWEN_INLINE WideInts multiply(WideInts sums, Pairs w, Pairs x) {
  int32x4x4_t parts;
  int16x8x4_t ws;
  int16x8x4_t xs;
  __builtin_memcpy(&parts, &sums, sizeof parts);
  __builtin_memcpy(&ws, &w, sizeof ws);
  __builtin_memcpy(&xs, &x, sizeof xs);
  for (int i = 0; i < 4; ++i) {
    parts.val[i] = multiply_quarter(parts.val[i], ws.val[i], xs.val[i]);
  }
  __builtin_memcpy(&sums, &parts, sizeof sums);
  return sums;
}

#endif

// The same from nothing: one instruction everywhere but on NEON.
MTLQWEN_INLINE WideInts multiply(Pairs w, Pairs x) {
#if defined(__AVX512BW__)
  return (WideInts)_mm512_madd_epi16((__m512i)w, (__m512i)x);
#elif defined(__x86_64__)
  const auto low = (HalfInts)_mm256_madd_epi16((__m256i)w.lo, (__m256i)x.lo);
  const auto high = (HalfInts)_mm256_madd_epi16((__m256i)w.hi, (__m256i)x.hi);
  return __builtin_shufflevector(low, high, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
#else
  return multiply(WideInts(0), w, x);
#endif
}

// Two neighbouring elements of a row in every lane.
MTLQWEN_INLINE Pairs broadcast2(const void* x) {
  int32_t two;
  __builtin_memcpy(&two, x, sizeof two);
  return (Pairs)WideInts(two);
}

}  // namespace mtlqwen::twins
