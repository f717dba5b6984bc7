#include "engine/scheduler.hpp"

#include <algorithm>

namespace mtlqwen {

std::optional<size_t> choose_next(std::span<const Waiting> line) {
  const auto weight = [](const Waiting& waiting) {
    return int64_t{waiting.priority} + waiting.passed_over / kPassesPerPriority;
  };
  const auto best =
      std::max_element(line.begin(), line.end(), [&](const Waiting& a, const Waiting& b) {
        return weight(a) < weight(b);  // max_element keeps the first of equals
      });
  if (best == line.end()) return std::nullopt;
  return static_cast<size_t>(best - line.begin());
}

std::vector<uint32_t> plan_rows(std::span<const RowWish> wishes, uint32_t rows,
                                uint32_t prefill_rows) {
  std::vector<uint32_t> counts;
  uint32_t left = rows;
  uint32_t hungry = 0;
  for (const RowWish& wish : wishes) {
    counts.push_back(wish.pending > 1 ? 1 : 1 + wish.width);
    left -= counts.back();
    hungry += wish.pending > 1 ? 1 : 0;
  }
  if (hungry < wishes.size()) left = std::min(left, prefill_rows - std::min(prefill_rows, hungry));
  while (left > 0 && hungry > 0) {
    const uint32_t share = std::max(left / hungry, 1U);
    hungry = 0;
    for (size_t i = 0; i < wishes.size() && left > 0; ++i) {
      const uint32_t pending = wishes[i].pending;
      if (counts[i] >= pending) continue;
      const uint32_t take = std::min({share, pending - counts[i], left});
      counts[i] += take;
      left -= take;
      hungry += counts[i] < pending ? 1 : 0;
    }
  }
  return counts;
}

void limit_told(std::span<const RowWish> wishes, uint32_t logit_rows,
                std::vector<uint32_t>& counts) {
  uint32_t left = logit_rows;
  uint32_t n_tellers = 0;
  for (const RowWish& wish : wishes) {
    left -= 1 + wish.width;
    n_tellers += wish.n_told > 0 ? 1 : 0;
  }
  for (size_t i = 0; i < wishes.size(); ++i) {
    if (wishes[i].n_told == 0) continue;
    counts[i] = std::min(counts[i], wishes[i].first_told + 1 + left / n_tellers);
  }
}

}  // namespace mtlqwen
