// Overflow-safe integer helpers for sizes and offsets that come from files or users.
#pragma once
#include <cstdint>
#include <limits>
#include <optional>

namespace mtlqwen {

[[nodiscard]] constexpr uint64_t ceil_div(uint64_t value, uint64_t step) {
  return value / step + (value % step != 0);
}

[[nodiscard]] constexpr uint64_t align_up(uint64_t value, uint64_t alignment) {
  return ceil_div(value, alignment) * alignment;
}

// a * b, or nothing where that does not fit 64 bits.
[[nodiscard]] constexpr std::optional<uint64_t> checked_mul(uint64_t a, uint64_t b) {
  if (a != 0 && b > std::numeric_limits<uint64_t>::max() / a) return std::nullopt;
  return a * b;
}

// a + b, or nothing where that does not fit 64 bits.
[[nodiscard]] constexpr std::optional<uint64_t> checked_add(uint64_t a, uint64_t b) {
  if (b > std::numeric_limits<uint64_t>::max() - a) return std::nullopt;
  return a + b;
}

}  // namespace mtlqwen
