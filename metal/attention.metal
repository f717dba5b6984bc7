// Attention over the sparse KV planes, between its linears.
//
//   attention_prepare  q = rope(norm(q)) * scale;
//                      planes at the row's position = half(rope(norm(k))), half(v); 0 for
//                      what is not finite, and then the row is spoilt
//   attention_split    (attention_split.metal) for one split of the context: max of q k,
//                      sum of exp(q k - max), sum of exp(q k - max) v
//   attention_merge    out = softmax(q k) v * sigmoid(gate), from the splits in order; without the
//                      factor where args.gated is 0, zeros where a row sees no key
//   attention_merge_int16  the same, as int16 rows (int16.h)
//
// A plane element is (slot * slot_tokens + position) * token_halves + kv_head * D + d. What a row
// sees, Sight says (attention.h); other keys are not read, and a split without one that the row sees
// has no result. Blocks are absolute: block b holds keys 128 b .. 128 b + 127 of the sequence, split
// s the blocks from s * blocks_per_split on. Inside a split blocks are folded in order, splits are
// merged in order: so a row's bits depend on its own request and blocks_per_split, never on its
// company. head_dim is a multiple of 32 and at most 256; up to 8 heads share a K/V head. One
// simdgroup a threadgroup.
#include <metal_stdlib>

#include "activation.h"
#include "attention.h"
#include "int16.h"
#include "spoilt.h"
using namespace metal;

constant constexpr uint kLaneDims = 8;  // of the values, for head_dim 256
constant constexpr float kHalfMax = 65504.0f;

// Planes hold finite numbers alone: a key that a row does not see has weight 0, but 0 times NaN is NaN.
inline half to_half(float x, thread bool& is_finite) {
  is_finite = is_finite && isfinite(x);
  return isfinite(x) ? half(clamp(x, -kHalfMax, kHalfMax)) : half(0.0f);
}

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

// Grid (H + Hkv, rows): the q heads, then the K/V heads, of one row. With n_heads = 0 it writes keys
// and values alone, and q, qg and q_norm are not touched.
kernel void
attention_prepare(device float* q [[buffer(0)]],  // (rows, H, D)
                  device half* k_plane [[buffer(1)]], device half* v_plane [[buffer(2)]],
                  device const float* qg [[buffer(3)]],  // (rows, H, 2 D): q, then gate; or (.., D)
                  device const float* k [[buffer(4)]],   // (rows, Hkv, D)
                  device const float* v [[buffer(5)]],   // (rows, Hkv, D)
                  device const float* q_norm [[buffer(6)]],  // (D), 1 + w
                  device const float* k_norm [[buffer(7)]],  // (D), 1 + w
                  device const float2* rope [[buffer(8)]],   // (context, rotary_dim / 2): cos, sin
                  device const QueryArgs* queries [[buffer(9)]],
                  device const uint* row_query [[buffer(10)]],  // (rows)
                  device atomic_uint* spoilt [[buffer(11)]],    // (rows)
                  constant AttentionArgs& args [[buffer(12)]], constant Pass& pass [[buffer(13)]],
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
    device const float* x = qg + head * (args.gated != 0 ? 2 : 1) * dim;
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
    bool is_finite = scale > 0.0f;  // else the sum of the head's squares is not
    for (uint i = lane; i < half_turn; i += 32) {
      const float2 pair = rotate_pair(x, k_norm, scale, turns[i], i, i + half_turn);
      y[i] = to_half(pair.x, is_finite);
      y[i + half_turn] = to_half(pair.y, is_finite);
    }
    for (uint i = args.rotary_dim + lane; i < dim; i += 32)
      y[i] = to_half(x[i] * scale * k_norm[i], is_finite);
    for (uint i = lane; i < dim; i += 32)
      v_plane[place + i] = to_half(v[head * dim + i], is_finite);
    if (!is_finite) note_spoilt(spoilt, row, args.place);
  }
}

// Eight dims of a head, four of them from each of `dims` on.
struct MergedDims {
  float4 low;
  float4 high;
};

// softmax(q k) v * sigmoid(gate) of them.
inline MergedDims merge_dims(uint2 dims, device const float* partial, device const float2* stats,
                             device const float* qg, uint row, uint head,
                             device const QueryArgs& query, constant AttentionArgs& args,
                             constant Pass& pass) {
  const Splits splits = row_splits(row, query, args, pass);
  const ulong place = ulong(head) * pass.n_splits;
  stats += place;
  partial += (place + splits.first) * args.head_dim;
  float top = -FLT_MAX;
  for (uint split = splits.first; split < splits.end; split++) top = max(top, stats[split].x);
  float total = splits.first == splits.end ? 1.0f : 0.0f;
  MergedDims sums = {float4(0.0f), float4(0.0f)};
  for (uint split = splits.first; split < splits.end; split++) {
    const float weight = precise::exp(stats[split].x - top);
    total += stats[split].y * weight;
    sums.low += *(device const float4*)(partial + dims.x) * weight;
    sums.high += *(device const float4*)(partial + dims.y) * weight;
    partial += args.head_dim;
  }
  MergedDims merged = {sums.low / total, sums.high / total};
  if (args.gated != 0) {
    device const float* gate = qg + (2 * ulong(head) + 1) * args.head_dim;
    merged.low *= sigmoid(*(device const float4*)(gate + dims.x));
    merged.high *= sigmoid(*(device const float4*)(gate + dims.y));
  }
  return merged;
}

// Grid (H, rows).
kernel void attention_merge(device float* out [[buffer(0)]],            // (rows, H * D)
                            device const float* partial [[buffer(1)]],  // (rows, H, n_splits, D)
                            device const float2* stats
                            [[buffer(2)]],                         // (rows, H, n_splits): max, sum
                            device const float* qg [[buffer(3)]],  // as of attention_prepare
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
  const MergedDims merged = merge_dims(uint2(dim, dim + 4), partial, stats, qg, row, head,
                                       queries[row_query[row]], args, pass);
  device float* to = out + head * args.head_dim + dim;
  *(device float4*)to = merged.low;
  *(device float4*)(to + 4) = merged.high;
}

// Grid (H, rows). A lane takes four dims of the first 128 and four of the others, so that eight
// neighbours have a qblock.
kernel void
attention_merge_int16(device uchar* out16 [[buffer(0)]],          // (rows) int16 rows of H * D
                      device const float* partial [[buffer(1)]],  // (rows, H, n_splits, D)
                      device const float2* stats [[buffer(2)]],   // (rows, H, n_splits): max, sum
                      device const float* qg [[buffer(3)]],       // as of attention_prepare
                      device const QueryArgs* queries [[buffer(4)]],
                      device const uint* row_query [[buffer(5)]],  // (rows)
                      constant AttentionArgs& args [[buffer(6)]], constant Pass& pass [[buffer(7)]],
                      uint2 group [[threadgroup_position_in_grid]],
                      uint lane [[thread_index_in_simdgroup]]) {
  const uint row = group.y;
  const uint head = row * args.n_heads + group.x;
  const uint2 dims = uint2(4 * lane, 4 * lane + 128);
  // Dims that the head does not have repeat its first ones and are not stored.
  const bool2 has = dims < args.head_dim;
  const MergedDims merged = merge_dims(select(uint2(0), dims, has), partial, stats, qg, row, head,
                                       queries[row_query[row]], args, pass);
  const uint k = args.n_heads * args.head_dim;
  device uchar* to = out16 + row * int16_row_bytes(k);
  const uint2 firsts = select(uint2(k), group.x * args.head_dim + dims, has);
  int16_quantise(to, k, firsts.x, merged.low, lane);
  int16_quantise(to, k, firsts.y, merged.high, lane);
}
