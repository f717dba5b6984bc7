// Where the Gated DeltaNet kernels find things.
#pragma once
#include <metal_stdlib>

#include "kernel_args.h"

// Floats before a bank.
inline ulong bank_start(uint bank, constant GdnArgs& args) {
  return ulong(bank) * args.bank_floats;
}

inline uint key_head(uint v_head, constant GdnArgs& args) {
  return args.k_head_tiled != 0 ? v_head % args.n_k_heads
                                : v_head / (args.n_v_heads / args.n_k_heads);
}

// Whether the query is verified: its rows go to the tape.
inline bool is_taped(device const QueryArgs& query) { return query.n_writes == 0; }

// Where a tape row holds the value `index` of k heads; of deltas; of decays. The channels come first.
inline uint tape_k(uint index, constant GdnArgs& args) {
  return (2 * args.n_k_heads + args.n_v_heads) * args.head_dim + index;
}
inline uint tape_delta(uint index, constant GdnArgs& args) {
  return tape_k(args.n_k_heads * args.head_dim, args) + index;
}
inline uint tape_decay(uint index, constant GdnArgs& args) {
  return tape_delta(args.n_v_heads * args.head_dim, args) + index;
}

// Four channels of the query's row `index` before the convolution. Negative: what the bank
// remembers (-1 the newest). `rows`: the query's first row, `stride` floats to the next.
inline float4 raw_row(device const float* rows, ulong stride, device const float* banks,
                      device const QueryArgs& query, constant GdnArgs& args, int index,
                      uint channel) {
  if (index >= 0) return *(device const float4*)(rows + uint(index) * stride + channel);
  if (query.kv_valid == 0) return float4(0.0f);
  const uint channels = (2 * args.n_k_heads + args.n_v_heads) * args.head_dim;
  device const float* state = banks + bank_start(query.bank, args) + args.conv_offset;
  return *(device const float4*)(state + uint(index + 3) * channels + channel);
}

// Four values of the state after a row. Spelled out, so that its bits are the same wherever it stands.
inline float4 after_row(float4 state, float decay, float4 k, float delta) {
  return fma(k, float4(delta), state * decay);
}
