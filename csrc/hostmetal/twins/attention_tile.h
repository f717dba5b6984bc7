// The two products of attention, for up to sixteen entries that share their keys and values.
//
// Both take the entries in groups of 4, 2 and 1, and as many keys or dims beside them as the sums
// fit the registers. The order of an entry's additions is the same in every group.
#pragma once
#include "attention.h"
#include "wide.h"

namespace mtlqwen::twins {

// What is multiplied at once, and how many sums of it are kept. AVX-512 has 32 registers for them
// (24 sums were no faster), AVX2 16, all used; NEON 32 of half that width.
#if defined(__AVX512F__)
constexpr uint32_t kLanes = 16;
constexpr uint32_t kSums = 16;
#else
constexpr uint32_t kLanes = 8;
constexpr uint32_t kSums = 12;
#endif
typedef float Vec __attribute__((ext_vector_type(kLanes), aligned(kLanes * 4)));
typedef float LooseVec __attribute__((ext_vector_type(kLanes), aligned(4)));
typedef _Float16 LooseHalfVec __attribute__((ext_vector_type(kLanes), aligned(2)));

MTLQWEN_INLINE Vec load_vec(const float* from) { return *reinterpret_cast<const LooseVec*>(from); }
MTLQWEN_INLINE Vec load_vec(const _Float16* from) {
  return __builtin_convertvector(*reinterpret_cast<const LooseHalfVec*>(from), Vec);
}
MTLQWEN_INLINE void store_vec(float* to, Vec a) { *reinterpret_cast<LooseVec*>(to) = a; }

template <class T, T... kLane>
struct Numbers {};
using LaneNumbers = __make_integer_seq<Numbers, uint32_t, kLanes>;

// kPer lanes belong to a sum, those of b follow those of a; the halves of each sum are added.
template <uint32_t kPer, uint32_t... kLane>
MTLQWEN_INLINE Vec fold_pair(Vec a, Vec b, Numbers<uint32_t, kLane...>) {
  constexpr uint32_t kHalf = kPer / 2;
  return __builtin_shufflevector(a, b, (kLane / kHalf * kPer + kLane % kHalf)...) +
         __builtin_shufflevector(a, b, (kLane / kHalf * kPer + kLane % kHalf + kHalf)...);
}

// The sum of the i-th of kCount vectors becomes element i.
template <uint32_t kPer, uint32_t kCount>
MTLQWEN_INLINE void fold_all(Vec* sums) {
  if constexpr (kPer > 1) {
    constexpr uint32_t kPairs = (kCount + 1) / 2;
#pragma unroll
    for (uint32_t i = 0; i < kPairs; i++) {
      const uint32_t second = 2 * i + 1 < kCount ? 2 * i + 1 : 2 * i;
      sums[i] = fold_pair<kPer>(sums[2 * i], sums[second], LaneNumbers{});
    }
    fold_all<kPer / 2, kPairs>(sums);
  }
}

// Keys of a block, counted from its first: begin .. end - 1.
struct Keys {
  uint32_t begin;
  uint32_t end;
};

// sums[e][j] += entry(e) * other(j). What there is less of stays in registers.
template <uint32_t kEntries, uint32_t kOthers, class Entry, class Other>
MTLQWEN_INLINE void add_products(Vec (&sums)[kEntries][kOthers], const Entry& entry,
                                 const Other& other) {
  if constexpr (kEntries <= kOthers) {
    Vec a[kEntries];
#pragma unroll
    for (uint32_t e = 0; e < kEntries; e++) a[e] = entry(e);
#pragma unroll
    for (uint32_t j = 0; j < kOthers; j++) {
      const Vec b = other(j);
#pragma unroll
      for (uint32_t e = 0; e < kEntries; e++)
        sums[e][j] = __builtin_elementwise_fma(a[e], b, sums[e][j]);
    }
  } else {
    Vec b[kOthers];
#pragma unroll
    for (uint32_t j = 0; j < kOthers; j++) b[j] = other(j);
#pragma unroll
    for (uint32_t e = 0; e < kEntries; e++) {
      const Vec a = entry(e);
#pragma unroll
      for (uint32_t j = 0; j < kOthers; j++)
        sums[e][j] = __builtin_elementwise_fma(a, b[j], sums[e][j]);
    }
  }
}

// Scores of kEntries queries and kKeys keys, whose rows start at `rows`: entry by entry.
template <uint32_t kEntries, uint32_t kKeys>
MTLQWEN_INLINE void score_tile(float* scores, const float* const* queries,
                               const _Float16* const* rows, uint32_t dim, const _Float16* next,
                               uint32_t stride) {
  Vec sums[kEntries][kKeys];
#pragma unroll
  for (uint32_t e = 0; e < kEntries; e++) {
#pragma unroll
    for (Vec& sum : sums[e]) sum = 0.0F;
  }
  for (uint32_t d = 0; d < dim; d += kLanes) {
    add_products(
        sums, [&](uint32_t e) { return load_vec(queries[e] + d); },
        [&](uint32_t j) {
          if (next && d % 32 == 0) __builtin_prefetch(next + j * stride + d);
          return load_vec(rows[j] + d);
        });
  }
  fold_all<kLanes, kEntries * kKeys>(sums[0]);
  __builtin_memcpy(scores, sums[0], kEntries * kKeys * sizeof(float));
}

// Scores of kEntries queries and some keys of a block. Pointers stand at the block's first key.
template <uint32_t kEntries>
MTLQWEN_INLINE void score_group(float (*scores)[kBlock], const float* const* queries,
                                const _Float16* keys, uint32_t stride, Keys known, uint32_t dim,
                                const _Float16* next) {
  constexpr uint32_t kKeys = kSums / kEntries < 8 ? kSums / kEntries : 8;
  for (uint32_t key = known.begin; key < known.end; key += kKeys) {
    // The last tile may end before its keys do; it repeats one.
    const uint32_t n = smaller(known.end - key, kKeys);
    const _Float16* rows[kKeys];
    for (uint32_t j = 0; j < kKeys; j++) rows[j] = keys + (j < n ? key + j : key) * stride;
    float tile[kEntries][kKeys];
    score_tile<kEntries, kKeys>(tile[0], queries, rows, dim, next ? next + key * stride : nullptr,
                                stride);
    for (uint32_t e = 0; e < kEntries; e++) {
      if (n == kKeys) {
        __builtin_memcpy(scores[e] + key, tile[e], sizeof tile[e]);
      } else {
        for (uint32_t j = 0; j < n; j++) scores[e][key + j] = tile[e][j];
      }
    }
  }
}

MTLQWEN_INLINE void score_keys(float (*scores)[kBlock], const float* const* queries,
                               uint32_t n_entries, const _Float16* keys, uint32_t stride,
                               Keys known, uint32_t dim, const _Float16* next) {
  uint32_t e = 0;
  for (; e + 4 <= n_entries; e += 4) {
    score_group<4>(scores + e, queries + e, keys, stride, known, dim, e == 0 ? next : nullptr);
  }
  if (e + 2 <= n_entries) {
    score_group<2>(scores + e, queries + e, keys, stride, known, dim, e == 0 ? next : nullptr);
    e += 2;
  }
  if (e < n_entries)
    score_group<1>(scores + e, queries + e, keys, stride, known, dim, e == 0 ? next : nullptr);
}

// sums = sums * fade + the weighted values of some keys of a block, in kVecs vectors of dims of
// kEntries entries.
template <uint32_t kEntries, uint32_t kVecs>
MTLQWEN_INLINE void add_tile(float (*sums)[kMaxDim], const float* fade,
                             const float (*weights)[kBlock], const _Float16* value, uint32_t stride,
                             Keys known, uint32_t first_dim, const _Float16* next) {
  Vec local[kEntries][kVecs];
#pragma unroll
  for (uint32_t e = 0; e < kEntries; e++) {
#pragma unroll
    for (uint32_t i = 0; i < kVecs; i++)
      local[e][i] = load_vec(sums[e] + first_dim + i * kLanes) * fade[e];
  }
  value += uint64_t{known.begin} * stride + first_dim;
  for (uint32_t key = known.begin; key < known.end; key++) {
    add_products(
        local, [&](uint32_t e) { return Vec(weights[e][key]); },
        [&](uint32_t i) {
          if (next && i * kLanes % 32 == 0)
            __builtin_prefetch(next + key * stride + first_dim + i * kLanes);
          return load_vec(value + i * kLanes);
        });
    value += stride;
  }
#pragma unroll
  for (uint32_t e = 0; e < kEntries; e++) {
#pragma unroll
    for (uint32_t i = 0; i < kVecs; i++) store_vec(sums[e] + first_dim + i * kLanes, local[e][i]);
  }
}

template <uint32_t kEntries, uint32_t kVecs>
MTLQWEN_INLINE void add_dims(float (*sums)[kMaxDim], const float* fade,
                             const float (*weights)[kBlock], const _Float16* values,
                             uint32_t stride, Keys known, uint32_t d, uint32_t dim,
                             const _Float16* next) {
  for (; d + kVecs * kLanes <= dim; d += kVecs * kLanes)
    add_tile<kEntries, kVecs>(sums, fade, weights, values, stride, known, d, next);
  if constexpr (kVecs > 1)
    add_dims<kEntries, (kVecs + 1) / 2>(sums, fade, weights, values, stride, known, d, dim, next);
}

template <uint32_t kEntries>
MTLQWEN_INLINE void add_group(float (*sums)[kMaxDim], const float* fade,
                              const float (*weights)[kBlock], const _Float16* values,
                              uint32_t stride, Keys known, uint32_t dim, const _Float16* next) {
  constexpr uint32_t kVecs = kSums / kEntries < 8 ? kSums / kEntries : 8;
  add_dims<kEntries, kVecs>(sums, fade, weights, values, stride, known, 0, dim, next);
}

MTLQWEN_INLINE void add_values(float (*sums)[kMaxDim], const float* fade,
                               const float (*weights)[kBlock], uint32_t n_entries,
                               const _Float16* values, uint32_t stride, Keys known, uint32_t dim,
                               const _Float16* next) {
  uint32_t e = 0;
  for (; e + 4 <= n_entries; e += 4)
    add_group<4>(sums + e, fade + e, weights + e, values, stride, known, dim,
                 e == 0 ? next : nullptr);
  if (e + 2 <= n_entries) {
    add_group<2>(sums + e, fade + e, weights + e, values, stride, known, dim,
                 e == 0 ? next : nullptr);
    e += 2;
  }
  if (e < n_entries)
    add_group<1>(sums + e, fade + e, weights + e, values, stride, known, dim,
                 e == 0 ? next : nullptr);
}

}  // namespace mtlqwen::twins
