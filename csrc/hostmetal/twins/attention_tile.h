// The two products of attention, for up to sixteen entries that share their keys and values.
//
// Both take the entries in groups of 4, 2 and 1, and as many keys or dims beside them as the sums
// fit the registers. The order of an entry's additions is the same in every group.
#pragma once
#include "attention.h"
#include "wide.h"

namespace mtlqwen::twins {

// Sums that are kept at once: registers of AVX-512; pairs of AVX2; quadruples of NEON.
#if defined(__AVX512F__)
constexpr uint32_t kSums = 16;
#else
constexpr uint32_t kSums = 4;
#endif

// Halves of a and of b added, those of a first; with count lanes to a sum before. fold() adds the
// same pairs.
template <uint32_t kLanes>
MTLQWEN_INLINE Wide fold_pair(Wide a, Wide b) {
  if constexpr (kLanes == 16) {
    return __builtin_shufflevector(a, b, 0, 1, 2, 3, 4, 5, 6, 7, 16, 17, 18, 19, 20, 21, 22, 23) +
           __builtin_shufflevector(a, b, 8, 9, 10, 11, 12, 13, 14, 15, 24, 25, 26, 27, 28, 29, 30,
                                   31);
  } else if constexpr (kLanes == 8) {
    return __builtin_shufflevector(a, b, 0, 1, 2, 3, 8, 9, 10, 11, 16, 17, 18, 19, 24, 25, 26, 27) +
           __builtin_shufflevector(a, b, 4, 5, 6, 7, 12, 13, 14, 15, 20, 21, 22, 23, 28, 29, 30,
                                   31);
  } else if constexpr (kLanes == 4) {
    return __builtin_shufflevector(a, b, 0, 1, 4, 5, 8, 9, 12, 13, 16, 17, 20, 21, 24, 25, 28, 29) +
           __builtin_shufflevector(a, b, 2, 3, 6, 7, 10, 11, 14, 15, 18, 19, 22, 23, 26, 27, 30,
                                   31);
  } else {
    return __builtin_shufflevector(a, b, 0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28,
                                   30) +
           __builtin_shufflevector(a, b, 1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31);
  }
}

// fold() of kSums vectors; the sum of the i-th in element i.
MTLQWEN_INLINE Wide fold_all(const Wide (&sums)[kSums]) {
  if constexpr (kSums == 16) {
    Wide eights[8];
    Wide fours[4];
    for (uint32_t i = 0; i < 8; i++) eights[i] = fold_pair<16>(sums[2 * i], sums[2 * i + 1]);
    for (uint32_t i = 0; i < 4; i++) fours[i] = fold_pair<8>(eights[2 * i], eights[2 * i + 1]);
    return fold_pair<2>(fold_pair<4>(fours[0], fours[1]), fold_pair<4>(fours[2], fours[3]));
  } else {
    const Wide both =
        fold_pair<8>(fold_pair<16>(sums[0], sums[1]), fold_pair<16>(sums[2], sums[3]));
    const Wide pairs = fold_pair<4>(both, both);
    return fold_pair<2>(pairs, pairs);
  }
}

// Scores of kEntries queries and the keys from `key` on; a key past the last one repeats it, and
// the place of its score is written.
template <uint32_t kEntries>
MTLQWEN_INLINE void score_group(float (*scores)[kBlock], const float* const* queries,
                                const _Float16* keys, uint32_t stride, uint32_t count, uint32_t dim,
                                const _Float16* next) {
  constexpr uint32_t kKeys = kSums / kEntries;
  for (uint32_t key = 0; key < count; key += kKeys) {
    const _Float16* rows[kKeys];
    for (uint32_t j = 0; j < kKeys; j++) {
      rows[j] = keys + uint64_t{key + j < count ? key + j : count - 1} * stride;
    }
    Wide sums[kSums];
    for (Wide& sum : sums) sum = 0.0F;
    for (uint32_t d = 0; d < dim; d += kWide) {
      Wide q[kEntries];
#pragma unroll
      for (uint32_t e = 0; e < kEntries; e++) q[e] = load(queries[e] + d);
#pragma unroll
      for (uint32_t j = 0; j < kKeys; j++) {
        const Wide k = load(rows[j] + d);
        if (next && d % 32 == 0) __builtin_prefetch(next + (key + j) * stride + d);
#pragma unroll
        for (uint32_t e = 0; e < kEntries; e++)
          sums[e * kKeys + j] = multiply_add(k, q[e], sums[e * kKeys + j]);
      }
    }
    const Wide folded = fold_all(sums);
#pragma unroll
    for (uint32_t e = 0; e < kEntries; e++) {
#pragma unroll
      for (uint32_t j = 0; j < kKeys; j++) scores[e][key + j] = folded[e * kKeys + j];
    }
  }
}

MTLQWEN_INLINE void score_keys(float (*scores)[kBlock], const float* const* queries,
                               uint32_t n_entries, const _Float16* keys, uint32_t stride,
                               uint32_t count, uint32_t dim, const _Float16* next) {
  uint32_t e = 0;
  for (; e + 4 <= n_entries; e += 4) {
    score_group<4>(scores + e, queries + e, keys, stride, count, dim, e == 0 ? next : nullptr);
  }
  if (e + 2 <= n_entries) {
    score_group<2>(scores + e, queries + e, keys, stride, count, dim, e == 0 ? next : nullptr);
    e += 2;
  }
  if (e < n_entries)
    score_group<1>(scores + e, queries + e, keys, stride, count, dim, e == 0 ? next : nullptr);
}

// sums = sums * fade + the weighted values, in kVecs * 16 dims of kEntries entries.
template <uint32_t kEntries, uint32_t kVecs>
MTLQWEN_INLINE void add_group(float (*sums)[kMaxDim], const float* fade,
                              const float (*weights)[kBlock], const _Float16* value,
                              uint32_t stride, uint32_t count, uint32_t first_dim,
                              const _Float16* next) {
  Wide local[kEntries][kVecs];
#pragma unroll
  for (uint32_t e = 0; e < kEntries; e++) {
#pragma unroll
    for (uint32_t i = 0; i < kVecs; i++)
      local[e][i] = load(sums[e] + first_dim + i * kWide) * fade[e];
  }
  value += first_dim;
  for (uint32_t key = 0; key < count; key++) {
    Wide v[kVecs];
#pragma unroll
    for (uint32_t i = 0; i < kVecs; i++) v[i] = load(value + i * kWide);
    if (next) {
#pragma unroll
      for (uint32_t i = 0; i < kVecs; i += 2)
        __builtin_prefetch(next + key * stride + first_dim + i * kWide);
    }
#pragma unroll
    for (uint32_t e = 0; e < kEntries; e++) {
      const Wide weight = weights[e][key];
#pragma unroll
      for (uint32_t i = 0; i < kVecs; i++) local[e][i] = multiply_add(weight, v[i], local[e][i]);
    }
    value += stride;
  }
#pragma unroll
  for (uint32_t e = 0; e < kEntries; e++) {
#pragma unroll
    for (uint32_t i = 0; i < kVecs; i++) store(sums[e] + first_dim + i * kWide, local[e][i]);
  }
}

template <uint32_t kEntries>
MTLQWEN_INLINE void add_dims(float (*sums)[kMaxDim], const float* fade,
                             const float (*weights)[kBlock], const _Float16* values,
                             uint32_t stride, uint32_t count, uint32_t dim, const _Float16* next) {
  constexpr uint32_t kVecs = kSums / kEntries < 8 ? kSums / kEntries : 8;
  uint32_t d = 0;
  for (; d + kVecs * kWide <= dim; d += kVecs * kWide)
    add_group<kEntries, kVecs>(sums, fade, weights, values, stride, count, d, next);
  for (; d < dim; d += kWide)
    add_group<kEntries, 1>(sums, fade, weights, values, stride, count, d, next);
}

MTLQWEN_INLINE void add_values(float (*sums)[kMaxDim], const float* fade,
                               const float (*weights)[kBlock], uint32_t n_entries,
                               const _Float16* values, uint32_t stride, uint32_t count,
                               uint32_t dim, const _Float16* next) {
  uint32_t e = 0;
  for (; e + 4 <= n_entries; e += 4)
    add_dims<4>(sums + e, fade + e, weights + e, values, stride, count, dim,
                e == 0 ? next : nullptr);
  if (e + 2 <= n_entries) {
    add_dims<2>(sums + e, fade + e, weights + e, values, stride, count, dim,
                e == 0 ? next : nullptr);
    e += 2;
  }
  if (e < n_entries)
    add_dims<1>(sums + e, fade + e, weights + e, values, stride, count, dim,
                e == 0 ? next : nullptr);
}

}  // namespace mtlqwen::twins
