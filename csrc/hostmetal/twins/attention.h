// Where the attention twins find things: metal/attention.h.
#pragma once
#include "twin.h"

namespace mtlqwen::twins {

constexpr uint32_t kBlock = 128;   // keys
constexpr uint32_t kMaxDim = 256;  // of a head

inline uint32_t row_position(uint32_t row, const QueryArgs& query) {
  return query.kv_valid + (row - query.first_row);
}

inline uint64_t plane_offset(uint32_t position, uint32_t kv_head, const QueryArgs& query,
                             const AttentionArgs& args) {
  return ((uint64_t{query.slot} * args.slot_tokens + position) * args.n_kv_heads + kv_head) *
         args.head_dim;
}

}  // namespace mtlqwen::twins
