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

std::vector<uint32_t> plan_rows(std::span<const uint32_t> pending, uint32_t rows,
                                uint32_t prefill_rows) {
  const auto n = static_cast<uint32_t>(pending.size());
  auto hungry = static_cast<uint32_t>(
      std::count_if(pending.begin(), pending.end(), [](uint32_t tokens) { return tokens > 1; }));
  uint32_t left = rows - n;
  if (hungry < n) left = std::min(left, prefill_rows - std::min(prefill_rows, hungry));
  std::vector<uint32_t> counts(n, 1);
  while (left > 0 && hungry > 0) {
    const uint32_t share = std::max(left / hungry, 1U);
    hungry = 0;
    for (uint32_t i = 0; i < n && left > 0; ++i) {
      const uint32_t take = std::min({share, pending[i] - counts[i], left});
      counts[i] += take;
      left -= take;
      hungry += counts[i] < pending[i] ? 1 : 0;
    }
  }
  return counts;
}

}  // namespace mtlqwen
