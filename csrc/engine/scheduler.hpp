// Which sequences get how many rows of a pass. Pure functions: no device, no clock, no state.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

namespace mtlqwen {

// Rows for each live sequence, given how many tokens each has pending (all > 0), in order of
// arrival. Every sequence gets at least one row; a decoding one (pending 1) no more than that; what
// is left of `rows` is shared equally by the prefilling ones, none getting more than it has
// pending, odd rows going to the earliest. Precondition: pending.size() <= rows.
[[nodiscard]] std::vector<uint32_t> plan_rows(std::span<const uint32_t> pending, uint32_t rows);

}  // namespace mtlqwen
