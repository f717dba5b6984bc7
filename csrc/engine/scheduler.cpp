#include "engine/scheduler.hpp"

#include <algorithm>

namespace mtlqwen {

std::vector<uint32_t> plan_rows(std::span<const uint32_t> pending, uint32_t rows) {
  std::vector<uint32_t> counts(pending.size(), 1);
  auto left = rows - static_cast<uint32_t>(pending.size());
  auto hungry = static_cast<uint32_t>(
      std::count_if(pending.begin(), pending.end(), [](uint32_t n) { return n > 1; }));
  while (left > 0 && hungry > 0) {
    const uint32_t share = std::max(left / hungry, 1U);
    hungry = 0;
    for (size_t i = 0; i < pending.size() && left > 0; ++i) {
      const uint32_t take = std::min({share, pending[i] - counts[i], left});
      counts[i] += take;
      left -= take;
      hungry += counts[i] < pending[i] ? 1 : 0;
    }
  }
  return counts;
}

}  // namespace mtlqwen
