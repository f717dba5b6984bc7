// Gated DeltaNet between its linears: convolution, gates, the recurrent delta rule, the gated norm.
// Reference: Yang, Kautz, Hatamizadeh, "Gated Delta Networks", arXiv 2412.06464, as transformers'
// Qwen3.5 computes it.
//
//   gdn_conv        y[t][c] = silu(sum_j w[c][j] * qkv[t - 3 + j][c])
//                   q heads l2(y) * Dk^-0.5, k heads l2(y), v heads y
//   gdn_conv_state  three raw rows of qkv become the conv state of each bank that is written
//   gdn_gates       decay = exp(A * softplus(a + dt_bias)), A = -exp(A_log) <= 0;  beta = sigmoid(b)
//   gdn_recurrent   S *= decay;  delta = beta * (v - S k);  S += delta k^T;  o = S q
//                   S is (Dv, Dk) per v head
//   gdn_norm        out = o / sqrt(mean(o^2) + eps) * weight * silu(z), per v head
//   gdn_norm_int16   the same, quantised
//
// A query whose draft is verified keeps no state: gdn_conv and gdn_recurrent write its rows to the
// tape, from which gdn_replay (metal/gdn_replay.metal) makes the state after those accepted.
//
// C = (2 Hk + Hv) * head_dim channels, in the order q heads, k heads, v heads. head_dim is 64 or
// 128, four conv taps. A query with kv_valid == 0 starts from zero state whatever its bank holds.
// Bank offsets are multiples of 4 floats. One simdgroup a threadgroup, no threadgroup memory.
#include <metal_stdlib>

#include "activation.h"
#include "gdn.h"
#include "int16.h"
using namespace metal;

constant constexpr float kL2Eps = 1e-6f;  // fixed in the reference, added to the sum of squares

// Grid (C / head_dim, rows): one head of one row.
kernel void gdn_conv(device float* act [[buffer(0)]],           // (rows, C)
                     device float* tape [[buffer(1)]],          // (tape rows): of verified queries
                     device const float* qkv [[buffer(2)]],     // (rows, C)
                     device const float* weight [[buffer(3)]],  // (C, 4), tap 3 is the row itself
                     device const float* banks [[buffer(4)]],
                     device const QueryArgs* queries [[buffer(5)]],
                     device const uint* row_query [[buffer(6)]],  // (rows)
                     constant GdnArgs& args [[buffer(7)]], constant Pass& pass [[buffer(8)]],
                     uint2 group [[threadgroup_position_in_grid]],
                     uint lane [[thread_index_in_simdgroup]]) {
  const uint channels = (2 * args.n_k_heads + args.n_v_heads) * args.head_dim;
  const uint channel = group.x * args.head_dim + lane * 4;
  const bool active = lane * 4 < args.head_dim;
  device const QueryArgs& query = queries[row_query[group.y]];
  const int index = int(group.y - query.first_row);

  float4 raw = float4(0.0f);
  float4 y = float4(0.0f);
  if (active) {
    device const float* rows = qkv + query.first_row * channels;
    device const float4* w = (device const float4*)weight + channel;
    const float4 w0 = w[0], w1 = w[1], w2 = w[2], w3 = w[3];
    y = float4(w0.x, w1.x, w2.x, w3.x) *
        raw_row(rows, channels, banks, query, args, index - 3, channel);
    y += float4(w0.y, w1.y, w2.y, w3.y) *
         raw_row(rows, channels, banks, query, args, index - 2, channel);
    y += float4(w0.z, w1.z, w2.z, w3.z) *
         raw_row(rows, channels, banks, query, args, index - 1, channel);
    raw = raw_row(rows, channels, banks, query, args, index, channel);
    y += float4(w0.w, w1.w, w2.w, w3.w) * raw;
    y = silu(y);
  }
  if (group.x < 2 * args.n_k_heads) {
    const float sum = simd_sum(dot(y, y));
    const float scale = group.x < args.n_k_heads ? precise::rsqrt(float(args.head_dim)) : 1.0f;
    y *= precise::rsqrt(sum + kL2Eps) * scale;
  }
  if (!active) return;
  *(device float4*)(act + group.y * channels + channel) = y;
  if (!is_taped(query)) return;
  device float* kept = tape + (query.first_tape + uint(index)) * args.tape_row_floats;
  *(device float4*)(kept + channel) = raw;
  if (group.x < args.n_k_heads || group.x >= 2 * args.n_k_heads) return;
  *(device float4*)(kept + tape_k(channel - args.n_k_heads * args.head_dim, args)) = y;
}

// Grid (C / head_dim, n_writes). No bank that a query reads is written.
kernel void gdn_conv_state(device float* banks [[buffer(0)]],
                           device const float* qkv [[buffer(1)]],  // (rows, C)
                           device const QueryArgs* queries [[buffer(2)]],
                           device const StateWriteArgs* writes [[buffer(3)]],  // (n_writes)
                           constant GdnArgs& args [[buffer(4)]], constant Pass& pass [[buffer(5)]],
                           uint2 group [[threadgroup_position_in_grid]],
                           uint lane [[thread_index_in_simdgroup]]) {
  const uint channels = (2 * args.n_k_heads + args.n_v_heads) * args.head_dim;
  const uint channel = group.x * args.head_dim + lane * 4;
  device const StateWriteArgs& write = writes[group.y];
  device const QueryArgs& query = queries[write.query];
  if (lane * 4 >= args.head_dim) return;
  device const float* rows = qkv + query.first_row * channels;
  device float* state = banks + bank_start(write.bank, args) + args.conv_offset;
  for (int row = 0; row < 3; row++) {
    *(device float4*)(state + uint(row) * channels + channel) =
        raw_row(rows, channels, banks, query, args, int(write.rows) - 3 + row, channel);
  }
}

// Grid (1, rows).
kernel void gdn_gates(device float2* gates [[buffer(0)]],         // (rows, Hv): decay, beta
                      device const float* a [[buffer(1)]],        // (rows, Hv)
                      device const float* b [[buffer(2)]],        // (rows, Hv)
                      device const float* rate [[buffer(3)]],     // (Hv): A
                      device const float* dt_bias [[buffer(4)]],  // (Hv)
                      constant GdnArgs& args [[buffer(5)]], constant Pass& pass [[buffer(6)]],
                      uint2 group [[threadgroup_position_in_grid]],
                      uint lane [[thread_index_in_simdgroup]]) {
  for (uint head = lane; head < args.n_v_heads; head += 32) {
    const uint i = group.y * args.n_v_heads + head;
    const float decay = precise::exp(rate[head] * softplus(a[i] + dt_bias[head]));
    gates[i] = float2(decay, sigmoid(b[i]));
  }
}

inline float sum4(float4 x) { return (x.x + x.y) + (x.z + x.w); }

// Eight value rows of one head; four lanes share a row, each holds Dk / 4 = 4 * kQuads floats of it
// in registers. Lane part p holds dk = 16 i + 4 p .. + 3, so that the four lanes of a row read 64
// bytes together. S k, S q and k q are reduced together before the update (o = decay * S q + delta
// * k q), so that a row costs one cross-lane reduction, and the state is read once and written once
// a bank, however many rows the query has. `to`: the value row's place in bank 0.
template <uint kQuads>
inline void recur(device float* out, device float* to, device float* tape, device const float* from,
                  device const float* act, device const float2* gates,
                  device const QueryArgs& query, device const StateWriteArgs* writes,
                  constant GdnArgs& args, uint v_head, uint value, uint part) {
  const uint k_head = key_head(v_head, args);
  const uint channels = (2 * args.n_k_heads + args.n_v_heads) * args.head_dim;
  float4 state[kQuads];
  for (uint i = 0; i < kQuads; i++) state[i] = float4(0.0f);
  if (query.kv_valid != 0) {
    device const float4* old = (device const float4*)from + part;
    for (uint i = 0; i < kQuads; i++) state[i] = old[i * 4];
  }
  const bool taped = is_taped(query);
  device const StateWriteArgs* write = writes + query.first_write;
  for (uint t = 0; t < query.count; t++) {
    const uint row = query.first_row + t;
    device const float* heads = act + row * channels;
    device const float4* q = (device const float4*)(heads + k_head * args.head_dim) + part;
    device const float4* k =
        (device const float4*)(heads + (args.n_k_heads + k_head) * args.head_dim) + part;
    const float v = heads[(2 * args.n_k_heads + v_head) * args.head_dim + value];
    const float2 gate = gates[row * args.n_v_heads + v_head];

    float4 sk = float4(0.0f);
    float4 sq = float4(0.0f);
    float4 kq = float4(0.0f);
    for (uint i = 0; i < kQuads; i++) {
      sk += state[i] * k[i * 4];
      sq += state[i] * q[i * 4];
      kq += k[i * 4] * q[i * 4];
    }
    const float4 sums = quad_sum(float4(sum4(sk), sum4(sq), sum4(kq), 0.0f));
    const float delta = gate.y * (v - gate.x * sums.x);
    for (uint i = 0; i < kQuads; i++) state[i] = after_row(state[i], gate.x, k[i * 4], delta);
    if (part == 0) {
      out[(row * args.n_v_heads + v_head) * args.head_dim + value] =
          gate.x * sums.y + delta * sums.z;
    }
    if (taped) {
      device float* kept = tape + (query.first_tape + t) * args.tape_row_floats;
      if (part == 0) kept[tape_delta(v_head * args.head_dim + value, args)] = delta;
      if (part == 0 && value == 0) kept[tape_decay(v_head, args)] = gate.x;
      continue;
    }
    if (t + 1 < write->rows) continue;
    device float4* kept = (device float4*)(to + bank_start(write->bank, args)) + part;
    for (uint i = 0; i < kQuads; i++) kept[i * 4] = state[i];
    write++;
  }
}

// Grid (Hv * Dv / 8, n_queries). No bank that a query reads is written.
kernel void gdn_recurrent(device float* out [[buffer(0)]],  // (rows, Hv * Dv)
                          device float* banks [[buffer(1)]],
                          device float* tape [[buffer(2)]],  // (tape rows): of verified queries
                          device const float* act [[buffer(3)]],     // (rows, C)
                          device const float2* gates [[buffer(4)]],  // (rows, Hv): decay, beta
                          device const float* banks_in [[buffer(5)]],
                          device const QueryArgs* queries [[buffer(6)]],
                          device const StateWriteArgs* writes [[buffer(7)]],  // (n_writes)
                          constant GdnArgs& args [[buffer(8)]], constant Pass& pass [[buffer(9)]],
                          uint2 group [[threadgroup_position_in_grid]],
                          uint lane [[thread_index_in_simdgroup]]) {
  device const QueryArgs& query = queries[group.y];
  if (query.count >= args.chunk_rows) return;  // gdn_chunk's
  const uint groups_per_head = args.head_dim / 8;
  const uint v_head = group.x / groups_per_head;
  const uint value = group.x % groups_per_head * 8 + lane / 4;
  const ulong place = args.state_offset + ulong(v_head * args.head_dim + value) * args.head_dim;
  device float* to = banks + place;
  device const float* from = banks_in + bank_start(query.bank, args) + place;
  if (args.head_dim == 128) {
    recur<8>(out, to, tape, from, act, gates, query, writes, args, v_head, value, lane % 4);
  } else {
    recur<4>(out, to, tape, from, act, gates, query, writes, args, v_head, value, lane % 4);
  }
}

// Where the lane's four values of a head stand in o and z. Lanes past the end of a head have none.
inline uint norm_place(uint2 group, constant GdnArgs& args, uint lane) {
  return (group.y * args.n_v_heads + group.x) * args.head_dim + lane * 4;
}

// The lane's four values of the normed and gated head; 0 where it has none. All lanes call it.
inline float4 norm_head(device const float* o, device const float* z, device const float* weight,
                        constant GdnArgs& args, uint2 group, uint lane) {
  const bool active = lane * 4 < args.head_dim;
  const uint place = norm_place(group, args, lane);
  float4 x = float4(0.0f);
  if (active) x = *(device const float4*)(o + place);
  const float scale = precise::rsqrt(simd_sum(dot(x, x)) / float(args.head_dim) + args.eps);
  if (!active) return x;
  const float4 w = *(device const float4*)(weight + lane * 4);
  return x * scale * w * silu(*(device const float4*)(z + place));
}

// Grid (Hv, rows).
kernel void gdn_norm(device float* out [[buffer(0)]],           // (rows, Hv * Dv)
                     device const float* o [[buffer(1)]],       // (rows, Hv * Dv)
                     device const float* z [[buffer(2)]],       // (rows, Hv * Dv)
                     device const float* weight [[buffer(3)]],  // (Dv)
                     constant GdnArgs& args [[buffer(4)]], constant Pass& pass [[buffer(5)]],
                     uint2 group [[threadgroup_position_in_grid]],
                     uint lane [[thread_index_in_simdgroup]]) {
  const float4 y = norm_head(o, z, weight, args, group, lane);
  if (lane * 4 < args.head_dim) *(device float4*)(out + norm_place(group, args, lane)) = y;
}

// gdn_norm into int16 rows. Grid (Hv, rows).
kernel void gdn_norm_int16(device uchar* out16 [[buffer(0)]],    // (rows): int16 rows of Hv * Dv
                           device const float* o [[buffer(1)]],  // (rows, Hv * Dv)
                           device const float* z [[buffer(2)]],  // (rows, Hv * Dv)
                           device const float* weight [[buffer(3)]],  // (Dv)
                           constant GdnArgs& args [[buffer(4)]], constant Pass& pass [[buffer(5)]],
                           uint2 group [[threadgroup_position_in_grid]],
                           uint lane [[thread_index_in_simdgroup]]) {
  const uint values = args.n_v_heads * args.head_dim;
  const float4 y = norm_head(o, z, weight, args, group, lane);
  const bool active = lane * 4 < args.head_dim;
  const uint first = active ? group.x * args.head_dim + lane * 4 : values;
  int16_quantise(out16 + group.y * int16_row_bytes(values), values, first, y, lane);
}
