// Where the attention kernels find things, and which keys a row sees.
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
  return (ulong(query.slot) * args.slot_tokens + position) * args.token_halves +
         kv_head * args.head_dim;
}

// The keys that a query's rows see: begin(position) .. end(position) - 1, none where that is empty.
// Neither bound falls from a row to the next.
struct Sight {
  uint first_key;
  uint back;       // keys up to a row's own, itself included
  uint ahead;      // keys from a row's own on, itself included
  uint query_end;  // behind the query's last row

  uint begin(uint position) const thread {
    return max(first_key, position + 1 - min(back, position + 1));
  }
  uint end(uint position) const thread { return min(query_end, position + ahead); }
};

inline Sight sight(device const QueryArgs& query, constant AttentionArgs& args) {
  constexpr uint kFar = 1u << 31;  // past every position
  const uint window = args.window == 0 ? kFar : min(args.window, kFar);
  return {args.first_key, window, args.causal != 0 ? 1 : window, query.kv_valid + query.count};
}

// Those splits of `split_keys` keys that hold one that the row sees: first .. end - 1.
struct Splits {
  uint first;
  uint end;
};

inline Splits row_splits(uint row, device const QueryArgs& query, constant AttentionArgs& args,
                         constant Pass& pass) {
  const Sight seen = sight(query, args);
  const uint position = row_position(row, query);
  const uint begin = seen.begin(position);
  const uint end = seen.end(position);
  const uint split_keys = pass.blocks_per_split * kBlock;
  if (begin >= end) return {0, 0};
  return {begin / split_keys, (end - 1) / split_keys + 1};
}
