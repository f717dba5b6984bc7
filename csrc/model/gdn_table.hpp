// The one table of which Gated DeltaNet kernel serves a query, by its rows and the kind of device.
#pragma once
#include <cstdint>
#include <limits>

namespace mtlqwen {

// Queries with as many rows go to gdn_chunk, the others to gdn_recurrent. Deterministic: none, since
// a row's bits in gdn_chunk depend on where its chunk begins.
// Software: a block of 32 rows costs what gdn_recurrent takes for 9 rows (AVX-512) or 20 (AVX2).
// GPU: from where other engines found it faster (MLX, gated_delta_fused_chunk).
[[nodiscard]] constexpr uint32_t gdn_chunk_rows(bool software, bool deterministic) {
  if (deterministic) return std::numeric_limits<uint32_t>::max();
  return software ? 20 : 64;
}

}  // namespace mtlqwen
