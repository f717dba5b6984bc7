// attention_split: one split of the context for rows of one query and the heads that share a K/V head
// (attention.metal tells what a split is, and what is made of it).
//
// A (row, head) pair is an entry. A threadgroup has up to kMaxEntries of them and reads each K and V
// element once for all. Scores: a lane takes whole keys. Values: a lane takes some dims of every key.
//
// An entry's bits do not depend on the others: its dot products, its running sums and the folds of
// its blocks are the same operations in the same order whatever stands beside it, and those keys of a
// tile that it does not see have weight 0, which changes neither sum. So a row gets the same result
// from every kernel of this file. One simdgroup a threadgroup.
#include <metal_stdlib>

#include "attention.h"
#include "wide.h"
using namespace metal;

// Finite, and exp(kMasked - kLowest) is 0: a masked key has no weight even before the first seen one.
constant constexpr float kMasked = -1e30f;
constant constexpr float kLowest = -1e29f;  // below any score

enum : uint {
  kLaneKeys = kBlock / 32,
  kElements = sizeof(Wide) / sizeof(float),
  kLaneVecs = kElements < 8 ? 8 / kElements : 1,  // of the values, for head_dim 256
  kLaneDims = kLaneVecs * kElements,
  kMaxVecs = kMaxDim / kElements,
};

// The entries of one threadgroup, row by row. Pointers stand at the first.
struct Tile {
  device float* partial;
  device float2* stats;
  device const float* q;
  uint n_heads;  // entries of a row
  uint n_entries;
  uint row_heads;  // heads of a row in memory
  uint n_splits;
  uint dim;
  uint first_position;  // of the first row
  Sight sight;

  uint position(uint entry) const thread { return first_position + entry / n_heads; }
  uint begin(uint entry) const thread { return sight.begin(position(entry)); }
  uint end(uint entry) const thread { return sight.end(position(entry)); }
  // Head `entry` of the tile, counted in memory from the first.
  uint head(uint entry) const thread { return entry / n_heads * row_heads + entry % n_heads; }
};

// Copies q of all entries to `queries` (vec, entry), so that one key meets them in a line. Entries past
// the last one repeat it.
template <uint kEntries>
inline void stage_queries(threadgroup Wide* queries, thread const Tile& tile, uint lane) {
  const uint n_vecs = tile.dim / kElements;
  for (uint i = lane; i < n_vecs * kEntries; i += 32) {
    device const float* head = tile.q + tile.head(min(i / n_vecs, tile.n_entries - 1)) * tile.dim;
    queries[i % n_vecs * kEntries + i / n_vecs] = load_floats<Wide>(head + i % n_vecs * kElements);
  }
}

// q k of one key: entry e in component e % 4 of scores[e / 4].
template <uint kEntries>
inline void score_key(thread float4* scores, threadgroup const Wide* queries,
                      device const half* key, uint dim) {
  Wide sums[kEntries];
#pragma unroll
  for (uint e = 0; e < kEntries; e++) sums[e] = Wide(0.0f);
  for (uint d = 0; d < dim; d += kElements) {
    const Wide k = load_halves<Wide>(key + d);
#pragma unroll
    for (uint e = 0; e < kEntries; e++) sums[e] = multiply_add(k, queries[e], sums[e]);
    queries += kEntries;
  }
#pragma unroll
  for (uint e = 0; e < kEntries; e++) scores[e / 4][e % 4] = fold(sums[e]);
}

// Adds the values of `count` keys, rows `stride` apart, to the lane's dims of every entry.
template <uint kEntries>
inline void add_values(thread Wide (&sums)[kEntries][kLaneVecs], device const half* value,
                       threadgroup const float4* weights, uint count, uint stride) {
  constexpr uint kVecs = (kEntries + 3) / 4;
  Wide local[kEntries][kLaneVecs];
#pragma unroll
  for (uint e = 0; e < kEntries; e++) {
#pragma unroll
    for (uint i = 0; i < kLaneVecs; i++) local[e][i] = sums[e][i];
  }
  for (uint key = 0; key < count; key++) {
    threadgroup const float* weight = (threadgroup const float*)(weights + key * kVecs);
#pragma unroll
    for (uint i = 0; i < kLaneVecs; i++) {
      const Wide v = load_halves<Wide>(value + i * kElements);
#pragma unroll
      for (uint e = 0; e < kEntries; e++)
        local[e][i] = multiply_add(Wide(weight[e]), v, local[e][i]);
    }
    value += stride;
  }
#pragma unroll
  for (uint e = 0; e < kEntries; e++) {
#pragma unroll
    for (uint i = 0; i < kLaneVecs; i++) sums[e][i] = local[e][i];
  }
}

// Keys first_key .. end_key - 1 of one split. kEntries is n_entries, or the next larger instance: the
// entries past n_entries are not stored. `weights` holds kBlock * (kEntries + 3) / 4 values.
template <uint kEntries>
inline void attend(thread const Tile& tile, device const half* keys, device const half* values,
                   threadgroup Wide* queries, threadgroup float4* weights, uint stride,
                   uint first_key, uint end_key, uint lane) {
  constexpr uint kVecs = (kEntries + 3) / 4;
  const uint dim = lane * kLaneDims;
  const bool active = dim < tile.dim;
  // All entries see the keys from `common` to `common_end` - 1.
  const uint common = tile.begin(tile.n_entries - 1);
  const uint common_end = tile.end(0);
  float4 top[kVecs];               // highest score so far
  float4 total[kVecs];             // this lane's sum of weights
  Wide sums[kEntries][kLaneVecs];  // weighted sums of the values
#pragma unroll
  for (uint i = 0; i < kVecs; i++) {
    top[i] = float4(kLowest);
    total[i] = float4(0.0f);
  }
#pragma unroll
  for (uint e = 0; e < kEntries; e++) {
#pragma unroll
    for (uint i = 0; i < kLaneVecs; i++) sums[e][i] = Wide(0.0f);
  }
  stage_queries<kEntries>(queries, tile, lane);
  simdgroup_barrier(mem_flags::mem_threadgroup);

  for (uint block = first_key / kBlock * kBlock; block < end_key; block += kBlock) {
    float4 scores[kLaneKeys][kVecs];
    float4 block_top[kVecs];
#pragma unroll
    for (uint i = 0; i < kVecs; i++) block_top[i] = top[i];
#pragma unroll
    for (uint j = 0; j < kLaneKeys; j++) {
      const uint key = block + j * 32 + lane;
#pragma unroll
      for (uint i = 0; i < kVecs; i++) scores[j][i] = float4(kMasked);
      if (key >= first_key && key < end_key) {
        score_key<kEntries>(scores[j], queries, keys + ulong(key) * stride, tile.dim);
        if (key < common || key >= common_end) {
#pragma unroll
          for (uint e = 0; e < kEntries; e++) {
            if (key < tile.begin(e) || key >= tile.end(e)) scores[j][e / 4][e % 4] = kMasked;
          }
        }
      }
#pragma unroll
      for (uint i = 0; i < kVecs; i++) block_top[i] = max(block_top[i], scores[j][i]);
    }
    float4 fade[kVecs];
#pragma unroll
    for (uint i = 0; i < kVecs; i++) {
      block_top[i] = simd_max(block_top[i]);
      fade[i] = precise::exp(top[i] - block_top[i]);
      top[i] = block_top[i];
    }
#pragma unroll
    for (uint j = 0; j < kLaneKeys; j++) {
#pragma unroll
      for (uint i = 0; i < kVecs; i++) {
        const float4 weight = precise::exp(scores[j][i] - top[i]);
        weights[(j * 32 + lane) * kVecs + i] = weight;
        // An explicit fma: left to the compiler, some instances contract it and others do not.
        total[i] = j == 0 ? fma(total[i], fade[i], weight) : total[i] + weight;
      }
    }
    simdgroup_barrier(mem_flags::mem_threadgroup);
    if (active) {
#pragma unroll
      for (uint e = 0; e < kEntries; e++) {
#pragma unroll
        for (uint i = 0; i < kLaneVecs; i++) sums[e][i] *= fade[e / 4][e % 4];
      }
      const uint key = max(block, first_key);
      add_values<kEntries>(sums, values + ulong(key) * stride + dim,
                           weights + (key - block) * kVecs, min(block + kBlock, end_key) - key,
                           stride);
    }
    simdgroup_barrier(mem_flags::mem_threadgroup);
  }

#pragma unroll
  for (uint i = 0; i < kVecs; i++) total[i] = simd_sum(total[i]);
#pragma unroll
  for (uint e = 0; e < kEntries; e++) {
    // A row that sees no key of the split has no result of it.
    const bool stores =
        e < tile.n_entries && max(first_key, tile.begin(e)) < min(end_key, tile.end(e));
    const uint head = tile.head(e);
    if (stores && lane == 0)
      tile.stats[head * tile.n_splits] = float2(top[e / 4][e % 4], total[e / 4][e % 4]);
    if (stores && active) {
      device float* to = tile.partial + ulong(head * tile.n_splits) * tile.dim + dim;
#pragma unroll
      for (uint i = 0; i < kLaneVecs; i++) store_floats(to + i * kElements, sums[e][i]);
    }
  }
}

// Grid (Hkv * n_splits, rows / rows of a tile, rounded up). A tile has as many rows as kMaxEntries
// holds, or one; where it spans queries, they are served one after the other.
template <uint kMaxEntries, bool kTiles>
kernel void
attention_split(device float* partial [[buffer(0)]],  // (rows, H, n_splits, D)
                device float2* stats [[buffer(1)]],   // (rows, H, n_splits): max, sum
                device const float* q [[buffer(2)]],  // (rows, H, D)
                device const half* k_plane [[buffer(3)]], device const half* v_plane [[buffer(4)]],
                device const QueryArgs* queries [[buffer(5)]],
                device const uint* row_query [[buffer(6)]],  // (rows)
                constant AttentionArgs& args [[buffer(7)]], constant Pass& pass [[buffer(8)]],
                uint2 group [[threadgroup_position_in_grid]],
                uint lane [[thread_index_in_simdgroup]]) {
  threadgroup float4 weights[kBlock * kMaxEntries / 4];
  threadgroup Wide staged[kMaxEntries * kMaxVecs];
  const uint kv_head = group.x % args.n_kv_heads;
  const uint split = group.x / args.n_kv_heads;
  const uint n_heads = args.n_heads / args.n_kv_heads;
  const uint tile_rows = kTiles ? kMaxEntries / n_heads : 1;
  const uint split_begin = split * pass.blocks_per_split * kBlock;
  const uint split_end = split_begin + pass.blocks_per_split * kBlock;
  const uint end_row = min(pass.rows, (group.y + 1) * tile_rows);

  uint n_rows = 0;
  for (uint row = group.y * tile_rows; row < end_row; row += n_rows) {
    device const QueryArgs& query = queries[row_query[row]];
    n_rows = min(end_row, query.first_row + query.count) - row;
    const Sight seen = sight(query, args);
    const uint position = row_position(row, query);
    const uint first_key = max(seen.begin(position), split_begin);
    const uint end_key = min(seen.end(position + n_rows - 1), split_end);
    if (first_key >= end_key) continue;  // the whole threadgroup

    const uint head = row * args.n_heads + kv_head * n_heads;
    const ulong place = ulong(head) * pass.n_splits + split;
    const ulong plane = plane_offset(0, kv_head, query, args);
    const uint n = n_rows * n_heads;
    const Tile tile = {partial + place * args.head_dim,
                       stats + place,
                       q + head * args.head_dim,
                       n_heads,
                       n,
                       args.n_heads,
                       pass.n_splits,
                       args.head_dim,
                       position,
                       seen};
#define MTLQWEN_ATTEND(ENTRIES)                                                                    \
  attend<ENTRIES>(tile, k_plane + plane, v_plane + plane, staged, weights, args.token_halves,      \
                  first_key, end_key, lane)
    if (n == 1) {
      MTLQWEN_ATTEND(1);
    } else if (n == 2) {
      MTLQWEN_ATTEND(2);
    } else if (n <= 4) {
      MTLQWEN_ATTEND(4);
    } else if (n <= 6) {
      MTLQWEN_ATTEND(6);
    } else if (n <= 8 || kMaxEntries <= 8) {
      MTLQWEN_ATTEND(8);
    } else {
      MTLQWEN_ATTEND(kMaxEntries);
    }
  }
}

#define MTLQWEN_INSTANCE(NAME, ...)                                                                \
  template [[host_name(                                                                            \
      NAME)]] [[kernel]] decltype(attention_split<__VA_ARGS__>) attention_split<__VA_ARGS__>;
MTLQWEN_INSTANCE("attention_split", kMaxHeads, false)
MTLQWEN_INSTANCE("attention_split_tile_8", 8, true)
MTLQWEN_INSTANCE("attention_split_tile_16", 16, true)
