#include "engine/boundaries.hpp"

#include <algorithm>

namespace mtlqwen {

std::vector<uint32_t> choose_boundaries(const BoundaryWishes& wishes) {
  std::vector<uint32_t> chosen;
  const std::span<const uint32_t> likely = wishes.likely;
  for (size_t i = 0; i < likely.size(); ++i) {
    const bool is_far = chosen.empty() || likely[i] - chosen.back() >= wishes.block_tokens;
    if (is_far || i + 1 == likely.size()) chosen.push_back(likely[i]);
  }
  if (wishes.diverges != 0) chosen.push_back(wishes.diverges);
  const uint32_t last = chosen.empty() ? 0 : *std::ranges::max_element(chosen);
  if (wishes.n_tokens > last + wishes.block_tokens) {
    chosen.push_back((wishes.n_tokens - 1) / wishes.block_tokens * wishes.block_tokens);
  }
  std::ranges::sort(chosen);
  const auto repeated = std::ranges::unique(chosen);
  chosen.erase(repeated.begin(), repeated.end());
  return chosen;
}

std::vector<uint32_t> boundaries_between(std::span<const uint32_t> boundaries, uint32_t interval,
                                         uint32_t from, uint32_t to, uint32_t most) {
  std::vector<uint32_t> found;
  auto next = std::ranges::upper_bound(boundaries, from);
  uint64_t multiple = interval == 0 ? uint64_t{to} + 1 : (uint64_t{from} / interval + 1) * interval;
  while (found.size() < most) {
    const uint64_t boundary = next == boundaries.end() ? uint64_t{to} + 1 : *next;
    const uint64_t position = std::min(boundary, multiple);
    if (position > to) break;
    found.push_back(static_cast<uint32_t>(position));
    if (position == boundary) ++next;
    if (position == multiple) multiple += interval;
  }
  return found;
}

}  // namespace mtlqwen
