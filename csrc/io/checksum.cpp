#include "io/checksum.hpp"

#include <algorithm>
#include <cstring>

namespace mtlqwen {

Checksum::Checksum(uint64_t seed) : rest_{} {
  for (uint64_t lane = 0; lane < kLanes; ++lane) lanes_[lane] = mix(seed, lane + 1);
}

// The lanes are copied out, or they would go to memory after every word.
void Checksum::add_stripes(const uint8_t* bytes, uint64_t n_stripes) {
  std::array<uint64_t, kLanes> lanes = lanes_;
  for (uint64_t stripe = 0; stripe < n_stripes; ++stripe) {
    std::array<uint64_t, kLanes> words;
    std::memcpy(words.data(), bytes + stripe * kStripe, kStripe);
    for (uint64_t lane = 0; lane < kLanes; ++lane) lanes[lane] = mix(lanes[lane], words[lane]);
  }
  lanes_ = lanes;
}

void Checksum::add(std::span<const uint8_t> bytes) {
  const uint64_t held = n_bytes_ % kStripe;
  n_bytes_ += bytes.size();
  if (held != 0) {
    const uint64_t count = std::min<uint64_t>(kStripe - held, bytes.size());
    std::copy_n(bytes.begin(), count, rest_.begin() + held);
    bytes = bytes.subspan(count);
    if (held + count < kStripe) return;
    add_stripes(rest_.data(), 1);
  }
  const uint64_t n_stripes = bytes.size() / kStripe;
  add_stripes(bytes.data(), n_stripes);
  std::copy(bytes.begin() + static_cast<std::ptrdiff_t>(n_stripes * kStripe), bytes.end(),
            rest_.begin());
}

uint64_t Checksum::value() const {
  Checksum whole = *this;
  if (const uint64_t held = n_bytes_ % kStripe; held != 0) {
    std::fill(whole.rest_.begin() + held, whole.rest_.end(), uint8_t{0});
    whole.add_stripes(whole.rest_.data(), 1);
  }
  uint64_t value = mix(0, n_bytes_);
  for (const uint64_t lane : whole.lanes_) value = mix(value, lane);
  return mix(value, kLanes);  // the last lane's high bits reach all of the value
}

uint64_t checksum(std::span<const uint8_t> bytes, uint64_t seed) {
  Checksum sum(seed);
  sum.add(bytes);
  return sum.value();
}

}  // namespace mtlqwen
