// The one table of which Gated DeltaNet kernel serves a query, by its rows and the kind of device.
#pragma once
#include <cstdint>
#include <limits>

#include "base/types.hpp"

namespace mtlqwen {

// Queries with as many rows go to gdn_chunk, the others to gdn_recurrent. Deterministic: none, since
// a row's bits in gdn_chunk depend on where its chunk begins.
// Software, twins: 16 rows take 259 us in gdn_chunk and 393 in gdn_recurrent (AVX-512), 603 and 677 (AVX2); 8 rows 166 and
// 262 (AVX-512). Above 16: as many rows as a draft may have stay with gdn_recurrent, which can tell the state after each.
// GPU: from where other engines found it faster (MLX, gated_delta_fused_chunk).
[[nodiscard]] constexpr uint32_t gdn_chunk_rows(bool software, bool deterministic) {
  if (deterministic) return std::numeric_limits<uint32_t>::max();
  return software ? 17 : 64;
}

// Rows of one taped query at most. gdn_chunk has no tape: it must never get one.
inline constexpr uint32_t kMostTapedRows = 1 + kMostWidth;
static_assert(gdn_chunk_rows(true, false) > kMostTapedRows &&
              gdn_chunk_rows(false, false) > kMostTapedRows);

}  // namespace mtlqwen
