// Where a request leaves checkpoints. Pure functions: no device, no state.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

namespace mtlqwen {

struct BoundaryWishes {
  uint32_t n_tokens = 0;               // of the request
  std::span<const uint32_t> likely{};  // positions that the caller expects to be reused, ascending
  uint32_t diverges = 0;  // where the request leaves the text of another one; 0: nowhere
  uint32_t block_tokens = 0;
};

// Positions in 1 .. n_tokens, ascending. Of the likely ones the first and the last, and those between
// that are a block or more from the one before: what is between costs less to compute again than to
// keep. Then where it diverges; and its last whole block unless one of these is less than a block
// from the end, so that the same request again computes little more than a block.
[[nodiscard]] std::vector<uint32_t> choose_boundaries(const BoundaryWishes& wishes);

// The positions in from + 1 .. to that get a checkpoint: of `boundaries` and every multiple of
// `interval` (0: none), ascending, at most `most` of them, the earliest.
[[nodiscard]] std::vector<uint32_t> boundaries_between(std::span<const uint32_t> boundaries,
                                                       uint32_t interval, uint32_t from,
                                                       uint32_t to, uint32_t most);

}  // namespace mtlqwen
