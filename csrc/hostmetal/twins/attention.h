// Where the attention twins find things, and which keys a row sees: metal/attention.h.
#pragma once
#include "twin.h"

namespace mtlqwen::twins {

constexpr uint32_t kBlock = 128;   // keys
constexpr uint32_t kMaxDim = 256;  // of a head

inline uint32_t smaller(uint32_t a, uint32_t b) { return a < b ? a : b; }
inline uint32_t larger(uint32_t a, uint32_t b) { return a < b ? b : a; }

inline uint32_t row_position(uint32_t row, const QueryArgs& query) {
  return query.kv_valid + (row - query.first_row);
}

inline uint64_t plane_offset(uint32_t position, uint32_t kv_head, const QueryArgs& query,
                             const AttentionArgs& args) {
  return (uint64_t{query.slot} * args.slot_tokens + position) * args.token_halves +
         uint64_t{kv_head} * args.head_dim;
}

// The keys that a query's rows see: begin(position) .. end(position) - 1, none where that is empty.
// Neither bound falls from a row to the next.
struct Sight {
  uint32_t first_key;
  uint32_t back;       // keys up to a row's own, itself included
  uint32_t ahead;      // keys from a row's own on, itself included
  uint32_t query_end;  // behind the query's last row

  [[nodiscard]] uint32_t begin(uint32_t position) const {
    return larger(first_key, position + 1 - smaller(back, position + 1));
  }
  [[nodiscard]] uint32_t end(uint32_t position) const {
    return smaller(query_end, position + ahead);
  }
};

inline Sight sight(const QueryArgs& query, const AttentionArgs& args) {
  constexpr uint32_t kFar = 1U << 31;  // past every position
  const uint32_t window = args.window == 0 ? kFar : smaller(args.window, kFar);
  return {args.first_key, window, args.causal != 0 ? 1 : window, query.kv_valid + query.count};
}

// Those splits of the context that hold a key that the row sees: first .. end - 1.
struct Splits {
  uint32_t first;
  uint32_t end;
};

inline Splits row_splits(uint32_t row, const QueryArgs& query, const AttentionArgs& args,
                         const Pass& pass) {
  const Sight seen = sight(query, args);
  const uint32_t position = row_position(row, query);
  const uint32_t begin = seen.begin(position);
  const uint32_t end = seen.end(position);
  const uint32_t split_keys = pass.blocks_per_split * kBlock;
  if (begin >= end) return {0, 0};
  return {begin / split_keys, (end - 1) / split_keys + 1};
}

}  // namespace mtlqwen::twins
