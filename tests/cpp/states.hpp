// Made-up states whose every byte follows from the tokens that they stand after.
#pragma once
#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "io/checkpoint_file.hpp"
#include "io/checksum.hpp"

namespace mtlqwen::testing {

inline StateOrigin small_origin(uint8_t model = 1) {
  StateOrigin origin{.arithmetic = 7, .n_planes = 2, .token_bytes = 24, .bank_bytes = 1000};
  origin.model.fill(model);
  return origin;
}

struct State {
  std::vector<uint8_t> bank;
  std::vector<std::vector<uint8_t>> planes;

  [[nodiscard]] StatePieces pieces() const { return {bank, {planes.begin(), planes.end()}}; }
};

inline State state_of(std::span<const int32_t> token_ids, const StateOrigin& origin) {
  uint64_t word = origin.arithmetic;
  for (const int32_t id : token_ids) word = mix(word, static_cast<uint32_t>(id));
  const auto fill = [&](uint64_t count) {
    std::vector<uint8_t> bytes(count);
    for (uint64_t i = 0; i < count; ++i) bytes[i] = static_cast<uint8_t>(word = mix(word, i));
    return bytes;
  };
  State state{.bank = fill(origin.bank_bytes), .planes = {}};
  for (uint32_t i = 0; i < origin.n_planes; ++i) {
    state.planes.push_back(fill(origin.token_bytes * token_ids.size()));
  }
  return state;
}

// Whether the file's state is the one of its tokens; throws where a checksum differs.
inline bool holds_its_state(const CheckpointFile& file) {
  const CheckpointHeader& header = file.header();
  const State want = state_of(header.token_ids.first(header.state_tokens), header.origin);
  bool same = std::ranges::equal(file.bank(), want.bank);
  for (uint32_t i = 0; i < header.origin.n_planes; ++i) {
    same = same && std::ranges::equal(file.plane(i), want.planes[i]);
  }
  return same;
}

}  // namespace mtlqwen::testing
