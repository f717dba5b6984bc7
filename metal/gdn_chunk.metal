// The delta rule of gdn_recurrent for queries of many rows, 32 rows at a time. Reference: Yang, Kautz,
// Hatamizadeh, "Gated Delta Networks", arXiv 2412.06464, section 3.3.
//
// With M[t][s] = decay[s + 1] .. decay[t] for s <= t, 0 for s > t, F[t] = decay[0] .. decay[t], and
// the state S before the block, one value dim v of a block is
//
//   A[t][s]  = beta[t] M[t][s] (k[t] k[s]) for s < t;   B[t][s] = M[t][s] (q[t] k[s])
//   delta[t] = beta[t] (v[t] - F[t] S k[t]) - sum_{s < t} A[t][s] delta[s]
//   o[t]     = F[t] S q[t] + sum_s B[t][s] delta[s]
//   S        = F[last] S + sum_s M[last][s] delta[s] k[s]
//
// M is a running product of decays, not the exponential of a difference of sums: nothing overflows,
// a decay of 0 or a product that underflows is the zero that it should be, and a strong decay does
// not cost the weak ones after it their digits.
//
// A lane owns one value dim and its row of S; the 32 rows of a block lie along its vectors. As the
// lane of row s it also makes column s of A and B. Rows past the end of a ragged block repeat its
// last one with beta 0 and decay 1, so that their delta is 0. A block ends where a state is kept;
// between blocks S stands in the bank that is written next. Verified queries, which keep none, have
// fewer rows than chunk_rows.
#include <metal_stdlib>

#include "gdn.h"
#include "wide.h"
using namespace metal;

enum : uint {
  kRows = 32,  // of a block, and lanes
  kDims = 32,  // of the keys, staged at a time
  kElements = sizeof(Wide) / sizeof(float),
  kVecs = kRows / kElements,
};

// Threadgroup memory of one block. `left` and `right` hold, one after the other: columns of k and q
// (dim, row); columns of A and B (s, t); rows of k (row, dim).
struct Stage {
  Wide left[kRows][kVecs];
  Wide right[kRows][kVecs];
  Wide beta[kVecs];
  Wide fade[kVecs];   // F
  Wide decay[kVecs];  // each row's own
  Wide last[kVecs];   // M[last]
};

// The lane's sums over all key dims: k k and q k of its row with every row, S k and S q of its value
// with every row.
struct Products {
  Wide kk[kVecs], qk[kVecs], sk[kVecs], sq[kVecs];
};

// Adds dims first_dim .. first_dim + 31. k and q: the lane's row.
inline void add_products(thread Products& sums, threadgroup Stage& stage, device const float* k,
                         device const float* q, device const float* state, uint lane) {
  threadgroup float* k_columns = (threadgroup float*)stage.left + lane;
  threadgroup float* q_columns = (threadgroup float*)stage.right + lane;
  for (uint d = 0; d < kDims; d++) {
    k_columns[d * kRows] = k[d];
    q_columns[d * kRows] = q[d];
  }
  simdgroup_barrier(mem_flags::mem_threadgroup);
  Products local = sums;  // in registers: nothing else can point to it
  for (uint d = 0; d < kDims; d++) {
    const Wide key = Wide(k_columns[d * kRows]);
    const Wide memory = Wide(state[d]);
#pragma unroll
    for (uint i = 0; i < kVecs; i++) {
      const Wide k_rows = stage.left[d][i];
      const Wide q_rows = stage.right[d][i];
      local.kk[i] = multiply_add(key, k_rows, local.kk[i]);
      local.qk[i] = multiply_add(key, q_rows, local.qk[i]);
      local.sk[i] = multiply_add(memory, k_rows, local.sk[i]);
      local.sq[i] = multiply_add(memory, q_rows, local.sq[i]);
    }
  }
  sums = local;
  simdgroup_barrier(mem_flags::mem_threadgroup);
}

// Column `lane` of A and B, M[last] of it, and F.
inline void put_columns(threadgroup Stage& stage, thread const Products& sums, uint lane) {
  threadgroup float* column = (threadgroup float*)stage.right[lane];
  threadgroup const float* decay = (threadgroup const float*)stage.decay;
  float product = 1.0f;
  for (uint t = 0; t < kRows; t++) {
    if (t > lane) product *= decay[t];
    const float m = t < lane ? 0.0f : product;
    column[t] = m;
    if (lane == 0) ((threadgroup float*)stage.fade)[t] = decay[0] * m;
  }
  ((threadgroup float*)stage.last)[lane] = product;
#pragma unroll
  for (uint i = 0; i < kVecs; i++) {
    const Wide m = stage.right[lane][i];
    stage.left[lane][i] = m * sums.kk[i] * stage.beta[i];
    stage.right[lane][i] = m * sums.qk[i];
  }
  ((threadgroup float*)stage.left[lane])[lane] = 0.0f;  // A is strictly triangular
}

// Forward substitution, a column at a time: delta[s] is final once the columns before s are taken
// off. Leaves delta scaled by M[last]. `v` and `out`: the value's place in the block's first row.
inline void solve(thread Wide* delta, device float* out, threadgroup const Stage& stage,
                  thread const Products& sums, device const float* v, uint channels, uint stride,
                  uint last_row) {
  Wide rest[kVecs];
  Wide o[kVecs];
#pragma unroll
  for (uint i = 0; i < kVecs; i++) {
    Wide value = Wide(0.0f);
#pragma unroll
    for (uint j = 0; j < kElements; j++) value[j] = v[min(i * kElements + j, last_row) * channels];
    rest[i] = stage.beta[i] * (value - stage.fade[i] * sums.sk[i]);
    o[i] = stage.fade[i] * sums.sq[i];
  }
#pragma unroll
  for (uint s = 0; s < kRows; s++) {
    const Wide known = Wide(rest[s / kElements][s % kElements]);
#pragma unroll
    for (uint i = s / kElements; i < kVecs; i++) {
      rest[i] = multiply_add(-known, stage.left[s][i], rest[i]);
      o[i] = multiply_add(known, stage.right[s][i], o[i]);
    }
  }
#pragma unroll
  for (uint i = 0; i < kVecs; i++) delta[i] = rest[i] * stage.last[i];
  // Downwards: rows past the last one are overwritten by it.
#pragma unroll
  for (uint t = kRows; t-- > 0;) out[min(t, last_row) * stride] = o[t / kElements][t % kElements];
}

// S of dims first_dim .. first_dim + 31 after the block. `to` may be `from`.
inline void update(device float* to, device const float* from, threadgroup Stage& stage,
                   thread const Wide* delta, device const float* k, float fade, uint lane) {
#pragma unroll
  for (uint i = 0; i < kVecs; i++) stage.left[lane][i] = load_floats<Wide>(k + i * kElements);
  simdgroup_barrier(mem_flags::mem_threadgroup);
  Wide sum[kVecs];
#pragma unroll
  for (uint i = 0; i < kVecs; i++) sum[i] = load_floats<Wide>(from + i * kElements) * fade;
#pragma unroll
  for (uint s = 0; s < kRows; s++) {
    const Wide known = Wide(delta[s / kElements][s % kElements]);
#pragma unroll
    for (uint i = 0; i < kVecs; i++) sum[i] = multiply_add(known, stage.left[s][i], sum[i]);
  }
#pragma unroll
  for (uint i = 0; i < kVecs; i++) store_floats(to + i * kElements, sum[i]);
  simdgroup_barrier(mem_flags::mem_threadgroup);
}

// Grid (Hv * Dv / 32, n_queries). No bank that a query reads is written.
kernel void gdn_chunk(device float* out [[buffer(0)]],  // (rows, Hv * Dv)
                      device float* banks [[buffer(1)]],
                      device const float* act [[buffer(2)]],     // (rows, C)
                      device const float2* gates [[buffer(3)]],  // (rows, Hv): decay, beta
                      device const float* banks_in [[buffer(4)]],
                      device const QueryArgs* queries [[buffer(5)]],
                      device const StateWriteArgs* writes [[buffer(6)]],  // (n_writes)
                      constant GdnArgs& args [[buffer(7)]], constant Pass& pass [[buffer(8)]],
                      uint2 group [[threadgroup_position_in_grid]],
                      uint lane [[thread_index_in_simdgroup]]) {
  threadgroup Stage stage;
  device const QueryArgs& query = queries[group.y];
  if (query.count < args.chunk_rows) return;  // gdn_recurrent's
  const uint dim = args.head_dim;
  const uint v_head = group.x / (dim / kRows);
  const uint value = group.x % (dim / kRows) * kRows + lane;
  const uint channels = (2 * args.n_k_heads + args.n_v_heads) * dim;
  const ulong place = args.state_offset + ulong(v_head * dim + value) * dim;
  device const StateWriteArgs* write = writes + query.first_write;
  device const float* from = banks_in + bank_start(query.bank, args) + place;
  device float* to = banks + bank_start(write->bank, args) + place;
  if (query.kv_valid == 0) {
    for (uint d = 0; d < dim; d += kElements) store_floats(to + d, Wide(0.0f));
    from = to;
  }

  for (uint first = 0; first < query.count;) {
    const uint first_row = query.first_row + first;
    const uint n_rows = min(uint(kRows), write->rows - first);
    const uint last_row = n_rows - 1;
    const uint row = first_row + min(lane, last_row);
    device const float* q = act + row * channels + key_head(v_head, args) * dim;
    device const float* k = q + args.n_k_heads * dim;
    float2 gate = float2(1.0f, 0.0f);
    if (lane <= last_row) gate = gates[row * args.n_v_heads + v_head];
    ((threadgroup float*)stage.decay)[lane] = gate.x;
    ((threadgroup float*)stage.beta)[lane] = gate.y;

    Products sums;
#pragma unroll
    for (uint i = 0; i < kVecs; i++) sums.kk[i] = sums.qk[i] = sums.sk[i] = sums.sq[i] = Wide(0.0f);
    for (uint d = 0; d < dim; d += kDims) add_products(sums, stage, k + d, q + d, from + d, lane);
    put_columns(stage, sums, lane);
    simdgroup_barrier(mem_flags::mem_threadgroup);
    Wide delta[kVecs];
    solve(delta, out + (first_row * args.n_v_heads + v_head) * dim + value, stage, sums,
          act + first_row * channels + (2 * args.n_k_heads + v_head) * dim + value, channels,
          args.n_v_heads * dim, last_row);
    const float fade = stage.fade[kVecs - 1][kElements - 1];
    simdgroup_barrier(mem_flags::mem_threadgroup);
    for (uint d = 0; d < dim; d += kDims) update(to + d, from + d, stage, delta, k + d, fade, lane);
    from = to;
    first += n_rows;
    if (first == write->rows && first < query.count) {
      write++;
      to = banks + bank_start(write->bank, args) + place;
    }
  }
}
