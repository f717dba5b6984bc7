// Gated attention over the sparse KV planes, between its linears.
//
//   attention_prepare  q = rope(norm(q)) * scale;
//                      planes at the row's position = half(rope(norm(k))), half(v)
//   attention_split    for one split of the context: max of q k, sum of exp(q k - max),
//                      sum of exp(q k - max) v
//   attention_merge    out = softmax(q k) v * sigmoid(gate), from the splits in order
//
// A plane element is ((slot * slot_tokens + position) * Hkv + kv_head) * D + d. A row sees the
// positions up to its own. Blocks are absolute: block b holds keys 128 b .. 128 b + 127 of the
// sequence, split s the blocks from s * blocks_per_split on. Inside a split blocks are folded in
// order, splits are merged in order: so a row's bits depend on its own request and
// blocks_per_split, never on its company. head_dim is a multiple of 32 and at most 256; up to 8
// heads share a K/V head. One simdgroup a threadgroup.
#include <metal_stdlib>

#include "activation.h"
#include "kernel_args.h"
using namespace metal;

constant constexpr uint kBlock = 128;  // keys
constant constexpr uint kLaneKeys = kBlock / 32;
constant constexpr uint kMaxHeads = 8;  // that share a K/V head
constant constexpr uint kLaneDims = 8;  // of the values, for head_dim 256
constant constexpr float kMasked = -1e30f;  // below any score, and finite: exp(kMasked - x) is 0
constant constexpr float kHalfMax = 65504.0f;

inline uint row_position(uint row, device const QueryArgs& query) {
  return query.kv_valid + (row - query.first_row);
}

inline ulong plane_offset(uint position, uint kv_head, device const QueryArgs& query,
                          constant AttentionArgs& args) {
  return ((ulong(query.slot) * args.slot_tokens + position) * args.n_kv_heads + kv_head) *
         args.head_dim;
}

inline half to_half(float x) { return half(clamp(x, -kHalfMax, kHalfMax)); }

// 1 / rms of one head.
inline float head_scale(device const float* x, constant AttentionArgs& args, uint lane) {
  float squares = 0.0f;
  for (uint d = lane * 4; d < args.head_dim; d += 128) {
    const float4 x4 = *(device const float4*)(x + d);
    squares += dot(x4, x4);
  }
  return precise::rsqrt(simd_sum(squares) / float(args.head_dim) + args.eps);
}

// The rotated pair (x[i], x[i + rotary_dim / 2]) of a normed head.
inline float2 rotate_pair(device const float* x, device const float* weight, float scale,
                          float2 turn, uint i, uint j) {
  const float a = x[i] * scale * weight[i];
  const float b = x[j] * scale * weight[j];
  return float2(a * turn.x - b * turn.y, b * turn.x + a * turn.y);
}

// Grid (H + Hkv, rows): the q heads, then the K/V heads, of one row.
kernel void
attention_prepare(device float* q [[buffer(0)]],  // (rows, H, D)
                  device half* k_plane [[buffer(1)]], device half* v_plane [[buffer(2)]],
                  device const float* qg [[buffer(3)]],      // (rows, H, 2 D): q, then gate
                  device const float* k [[buffer(4)]],       // (rows, Hkv, D)
                  device const float* v [[buffer(5)]],       // (rows, Hkv, D)
                  device const float* q_norm [[buffer(6)]],  // (D), 1 + w
                  device const float* k_norm [[buffer(7)]],  // (D), 1 + w
                  device const float2* rope [[buffer(8)]],   // (context, rotary_dim / 2): cos, sin
                  device const QueryArgs* queries [[buffer(9)]],
                  device const uint* row_query [[buffer(10)]],  // (rows)
                  constant AttentionArgs& args [[buffer(11)]], constant Pass& pass [[buffer(12)]],
                  uint2 group [[threadgroup_position_in_grid]],
                  uint lane [[thread_index_in_simdgroup]]) {
  const uint row = group.y;
  const uint dim = args.head_dim;
  const uint half_turn = args.rotary_dim / 2;
  device const QueryArgs& query = queries[row_query[row]];
  const uint position = row_position(row, query);
  device const float2* turns = rope + ulong(position) * half_turn;

  if (group.x < args.n_heads) {
    const uint head = row * args.n_heads + group.x;
    device const float* x = qg + head * 2 * dim;
    device float* y = q + head * dim;
    const float scale = head_scale(x, args, lane);
    for (uint i = lane; i < half_turn; i += 32) {
      const float2 pair = rotate_pair(x, q_norm, scale, turns[i], i, i + half_turn) * args.scale;
      y[i] = pair.x;
      y[i + half_turn] = pair.y;
    }
    for (uint i = args.rotary_dim + lane; i < dim; i += 32)
      y[i] = x[i] * scale * q_norm[i] * args.scale;
  } else {
    const uint kv_head = group.x - args.n_heads;
    const uint head = row * args.n_kv_heads + kv_head;
    const ulong place = plane_offset(position, kv_head, query, args);
    device const float* x = k + head * dim;
    device half* y = k_plane + place;
    const float scale = head_scale(x, args, lane);
    for (uint i = lane; i < half_turn; i += 32) {
      const float2 pair = rotate_pair(x, k_norm, scale, turns[i], i, i + half_turn);
      y[i] = to_half(pair.x);
      y[i + half_turn] = to_half(pair.y);
    }
    for (uint i = args.rotary_dim + lane; i < dim; i += 32)
      y[i] = to_half(x[i] * scale * k_norm[i]);
    for (uint i = lane; i < dim; i += 32) v_plane[place + i] = to_half(v[head * dim + i]);
  }
}

// q k of one key for every head of the group: head g in component g % 4 of scores[g / 4].
template <uint kHeads>
inline void score_key(thread float4* scores, device const float* q, device const half* key,
                      uint last_head, uint dim) {
  float4 low[kHeads];
  float4 high[kHeads];
  for (uint g = 0; g < kHeads; g++) {
    low[g] = float4(0.0f);
    high[g] = float4(0.0f);
  }
  for (uint d = 0; d < dim; d += 8) {
    const float4 k_low = float4(*(device const half4*)(key + d));
    const float4 k_high = float4(*(device const half4*)(key + d + 4));
    for (uint g = 0; g < kHeads; g++) {
      device const float* head = q + min(g, last_head) * dim + d;
      low[g] += k_low * *(device const float4*)head;
      high[g] += k_high * *(device const float4*)(head + 4);
    }
  }
  for (uint g = 0; g < kHeads; g++) {
    const float4 sum = low[g] + high[g];
    scores[g / 4][g % 4] = (sum.x + sum.y) + (sum.z + sum.w);
  }
}

// Keys first_key .. end_key - 1 of one split for the heads that share a K/V head. Scores: a lane
// takes whole keys. Values: a lane takes eight dims of every key, so each K and V element is read
// once for the whole group. kHeads is n_heads, or the next larger instance: the heads past n_heads
// repeat the last one and are not stored. Pointers stand at the first head; `weights` holds kBlock
// * (kHeads + 3) / 4 values.
template <uint kHeads>
inline void attend(device float* partial, device float2* stats, device const float* q,
                   device const half* keys, device const half* values, threadgroup float4* weights,
                   constant AttentionArgs& args, uint n_heads, uint n_splits, uint first_key,
                   uint end_key, uint lane) {
  constexpr uint kVecs = (kHeads + 3) / 4;
  const uint stride = args.n_kv_heads * args.head_dim;
  const uint dim = lane * kLaneDims;
  const bool active = dim < args.head_dim;
  float4 top[kVecs];    // highest score so far
  float4 total[kVecs];  // this lane's sum of weights
  float4 low[kHeads];   // weighted sum of the values, dims dim .. dim + 3
  float4 high[kHeads];  // dims dim + 4 .. dim + 7
  for (uint i = 0; i < kVecs; i++) {
    top[i] = float4(kMasked);
    total[i] = float4(0.0f);
  }
  for (uint g = 0; g < kHeads; g++) {
    low[g] = float4(0.0f);
    high[g] = float4(0.0f);
  }

  for (uint block = first_key; block < end_key; block += kBlock) {
    const uint count = min(kBlock, end_key - block);
    float4 scores[kLaneKeys][kVecs];
    float4 block_top[kVecs];
    for (uint i = 0; i < kVecs; i++) block_top[i] = top[i];
    for (uint j = 0; j < kLaneKeys; j++) {
      const uint key = j * 32 + lane;
      for (uint i = 0; i < kVecs; i++) scores[j][i] = float4(kMasked);
      if (key < count) {
        score_key<kHeads>(scores[j], q, keys + ulong(block + key) * stride, n_heads - 1,
                          args.head_dim);
      }
      for (uint i = 0; i < kVecs; i++) block_top[i] = max(block_top[i], scores[j][i]);
    }
    float4 fade[kVecs];
    for (uint i = 0; i < kVecs; i++) {
      block_top[i] = simd_max(block_top[i]);
      fade[i] = precise::exp(top[i] - block_top[i]);
      top[i] = block_top[i];
      total[i] *= fade[i];
    }
    for (uint j = 0; j < kLaneKeys; j++) {
      for (uint i = 0; i < kVecs; i++) {
        const float4 weight = precise::exp(scores[j][i] - top[i]);
        weights[(j * 32 + lane) * kVecs + i] = weight;
        total[i] += weight;
      }
    }
    simdgroup_barrier(mem_flags::mem_threadgroup);
    if (active) {
      for (uint g = 0; g < kHeads; g++) {
        low[g] *= fade[g / 4][g % 4];
        high[g] *= fade[g / 4][g % 4];
      }
      device const half* value = values + ulong(block) * stride + dim;
      for (uint key = 0; key < count; key++) {
        const float4 v_low = float4(*(device const half4*)value);
        const float4 v_high = float4(*(device const half4*)(value + 4));
        for (uint g = 0; g < kHeads; g++) {
          const float weight = weights[key * kVecs + g / 4][g % 4];
          low[g] += v_low * weight;
          high[g] += v_high * weight;
        }
        value += stride;
      }
    }
    simdgroup_barrier(mem_flags::mem_threadgroup);
  }

  for (uint i = 0; i < kVecs; i++) total[i] = simd_sum(total[i]);
  for (uint g = 0; g < kHeads; g++) {
    if (g < n_heads && lane == 0)
      stats[g * n_splits] = float2(top[g / 4][g % 4], total[g / 4][g % 4]);
    if (g < n_heads && active) {
      device float* to = partial + ulong(g * n_splits) * args.head_dim + dim;
      *(device float4*)to = low[g];
      *(device float4*)(to + 4) = high[g];
    }
  }
}

// Grid (Hkv * n_splits, rows): one split of one row for the heads of one K/V head. Past the row's
// end: nothing.
kernel void attention_split(device float* partial [[buffer(0)]],  // (rows, H, n_splits, D)
                            device float2* stats [[buffer(1)]],   // (rows, H, n_splits): max, sum
                            device const float* q [[buffer(2)]],  // (rows, H, D)
                            device const half* k_plane [[buffer(3)]],
                            device const half* v_plane [[buffer(4)]],
                            device const QueryArgs* queries [[buffer(5)]],
                            device const uint* row_query [[buffer(6)]],  // (rows)
                            constant AttentionArgs& args [[buffer(7)]],
                            constant Pass& pass [[buffer(8)]],
                            uint2 group [[threadgroup_position_in_grid]],
                            uint lane [[thread_index_in_simdgroup]]) {
  threadgroup float4 weights[kBlock * kMaxHeads / 4];
  const uint row = group.y;
  const uint kv_head = group.x % args.n_kv_heads;
  const uint split = group.x / args.n_kv_heads;
  device const QueryArgs& query = queries[row_query[row]];
  const uint length = row_position(row, query) + 1;
  const uint first_key = split * pass.blocks_per_split * kBlock;
  if (first_key >= length) return;  // the whole threadgroup
  const uint end_key = min(length, first_key + pass.blocks_per_split * kBlock);

  const uint n_heads = args.n_heads / args.n_kv_heads;
  const uint head = row * args.n_heads + kv_head * n_heads;
  const ulong place = ulong(head) * pass.n_splits + split;
  const ulong plane = plane_offset(0, kv_head, query, args);
  device float* to = partial + place * args.head_dim;
  device float2* to_stats = stats + place;
  device const float* from = q + head * args.head_dim;
  device const half* k = k_plane + plane;
  device const half* v = v_plane + plane;
  const uint splits = pass.n_splits;
  if (n_heads == 1) {
    attend<1>(to, to_stats, from, k, v, weights, args, n_heads, splits, first_key, end_key, lane);
  } else if (n_heads == 2) {
    attend<2>(to, to_stats, from, k, v, weights, args, n_heads, splits, first_key, end_key, lane);
  } else if (n_heads <= 4) {
    attend<4>(to, to_stats, from, k, v, weights, args, n_heads, splits, first_key, end_key, lane);
  } else if (n_heads <= 6) {
    attend<6>(to, to_stats, from, k, v, weights, args, n_heads, splits, first_key, end_key, lane);
  } else {
    attend<8>(to, to_stats, from, k, v, weights, args, n_heads, splits, first_key, end_key, lane);
  }
}

// Grid (H, rows).
kernel void attention_merge(device float* out [[buffer(0)]],            // (rows, H * D)
                            device const float* partial [[buffer(1)]],  // (rows, H, n_splits, D)
                            device const float2* stats
                            [[buffer(2)]],                         // (rows, H, n_splits): max, sum
                            device const float* qg [[buffer(3)]],  // (rows, H, 2 D): q, then gate
                            device const QueryArgs* queries [[buffer(4)]],
                            device const uint* row_query [[buffer(5)]],  // (rows)
                            constant AttentionArgs& args [[buffer(6)]],
                            constant Pass& pass [[buffer(7)]],
                            uint2 group [[threadgroup_position_in_grid]],
                            uint lane [[thread_index_in_simdgroup]]) {
  const uint dim = lane * kLaneDims;
  if (dim >= args.head_dim) return;
  const uint row = group.y;
  const uint head = row * args.n_heads + group.x;
  const uint last = row_position(row, queries[row_query[row]]);
  const uint n_splits = last / (pass.blocks_per_split * kBlock) + 1;
  device const float2* stat = stats + ulong(head) * pass.n_splits;
  device const float* from = partial + ulong(head) * pass.n_splits * args.head_dim + dim;

  float top = stat[0].x;
  for (uint split = 1; split < n_splits; split++) top = max(top, stat[split].x);
  float total = 0.0f;
  float4 low = float4(0.0f);
  float4 high = float4(0.0f);
  for (uint split = 0; split < n_splits; split++) {
    const float weight = precise::exp(stat[split].x - top);
    total += stat[split].y * weight;
    low += *(device const float4*)from * weight;
    high += *(device const float4*)(from + 4) * weight;
    from += args.head_dim;
  }
  device const float* gate = qg + ulong(head) * 2 * args.head_dim + args.head_dim + dim;
  device float* to = out + head * args.head_dim + dim;
  *(device float4*)to = low / total * sigmoid(*(device const float4*)gate);
  *(device float4*)(to + 4) = high / total * sigmoid(*(device const float4*)(gate + 4));
}
