// 64-bit checksums against damage, fast enough for what a memory bus delivers. No protection
// against forgery.
#pragma once
#include <array>
#include <bit>
#include <cstdint>
#include <span>

namespace mtlqwen {

static_assert(std::endian::native == std::endian::little, "sums are of little-endian words");

// One word into a 64-bit state. For each state it is one-to-one in the word, and the reverse.
[[nodiscard]] constexpr uint64_t mix(uint64_t state, uint64_t word) {
  state = (state ^ word) * 0xD6E8FEB86659FD93ULL;  // odd, half of its bits set
  return state ^ (state >> 32);
}

// Word i of the bytes goes to lane i % 8, so that multiplications need not wait for each other; the
// last 64 bytes are filled up with zeros. value() mixes the length and the lanes. Damage within one
// 8-byte word is therefore always found, any other that is blind to the sum but once in 2^64. The
// value depends on seed and bytes alone, not on how add() was given them. The formula:
// docs/design/checkpoints.md.
class Checksum {
 public:
  explicit Checksum(uint64_t seed = 0);

  void add(std::span<const uint8_t> bytes);
  [[nodiscard]] uint64_t value() const;

 private:
  static constexpr uint64_t kLanes = 8;
  static constexpr uint64_t kStripe = kLanes * sizeof(uint64_t);

  void add_stripes(const uint8_t* bytes, uint64_t n_stripes);

  std::array<uint64_t, kLanes> lanes_;
  std::array<uint8_t, kStripe> rest_;  // the first n_bytes_ % kStripe: not in the lanes yet
  uint64_t n_bytes_ = 0;
};

[[nodiscard]] uint64_t checksum(std::span<const uint8_t> bytes, uint64_t seed = 0);

}  // namespace mtlqwen
