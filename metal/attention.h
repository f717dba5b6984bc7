// Where the attention kernels find things.
#pragma once
#include <metal_stdlib>

#include "kernel_args.h"

constant constexpr uint kBlock = 128;   // keys
constant constexpr uint kMaxHeads = 8;  // that share a K/V head
constant constexpr uint kMaxDim = 256;  // of a head

inline uint row_position(uint row, device const QueryArgs& query) {
  return query.kv_valid + (row - query.first_row);
}

inline ulong plane_offset(uint position, uint kv_head, device const QueryArgs& query,
                          constant AttentionArgs& args) {
  return ((ulong(query.slot) * args.slot_tokens + position) * args.n_kv_heads + kv_head) *
         args.head_dim;
}
