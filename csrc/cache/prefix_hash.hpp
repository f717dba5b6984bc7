// The hash of a prefix: 64 bits, chained over token blocks.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>

namespace mtlqwen {

// parent: the hash of what stands before `tokens`; kRootHash where nothing does.
using PrefixHash = uint64_t (*)(uint64_t parent, std::span<const int32_t> tokens);

inline constexpr uint64_t kRootHash = 0xbb67ae8584caa73b;  // 64 bits of the fraction of sqrt(3)

// Two ids a word; each word is added and spread over the upper bits by an odd factor (the fraction
// of the golden ratio), and these are folded back. Every step can be undone, for the state as for
// the word: prefixes that differ in one word alone always differ in their hash. The length goes in
// last, so that an id 0 at the end counts; two more steps let every bit reach every other.
// No protection against ids chosen to collide: whoever looks up compares the tokens.
[[nodiscard]] inline uint64_t prefix_hash(uint64_t parent, std::span<const int32_t> tokens) {
  constexpr uint64_t kFactor = 0x9e3779b97f4a7c15;
  constexpr uint64_t kStep = 0x6a09e667f3bcc909;  // sqrt(2): zeros move the state, too
  const auto word_of = [](int32_t low, int32_t high) {
    return uint64_t{static_cast<uint32_t>(high)} << 32 | static_cast<uint32_t>(low);
  };
  const auto mix = [](uint64_t state, uint64_t word) {
    state = ((state + kStep) ^ word) * kFactor;
    return state ^ state >> 32;
  };
  uint64_t state = parent;
  size_t i = 0;
  for (; i + 2 <= tokens.size(); i += 2) state = mix(state, word_of(tokens[i], tokens[i + 1]));
  if (i < tokens.size()) state = mix(state, word_of(tokens[i], 0));
  return mix(mix(mix(state, tokens.size()), 0), 0);
}

}  // namespace mtlqwen
