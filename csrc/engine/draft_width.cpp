#include "engine/draft_width.hpp"

#include <algorithm>
#include <utility>

namespace mtlqwen {

WidthPlan choose_widths(std::span<const WidthCandidate> candidates,
                        std::span<const double> seconds) {
  // A heap of each candidate's next proposal; of equals the earliest candidate's comes first.
  using Next = std::pair<float, size_t>;
  const auto later = [](const Next& a, const Next& b) {
    return a.first < b.first || (a.first == b.first && a.second > b.second);
  };
  std::vector<Next> heap;
  heap.reserve(candidates.size());
  for (size_t i = 0; i < candidates.size(); ++i) {
    if (candidates[i].most > 0) heap.emplace_back(candidates[i].chain[0], i);
  }
  std::ranges::make_heap(heap, later);

  WidthPlan best;
  best.tokens = static_cast<double>(candidates.size());
  best.seconds = seconds.front();
  double tokens = best.tokens;
  std::vector<size_t> taken;  // candidate of each proposal
  std::vector<uint32_t> widths(candidates.size(), 0);
  while (!heap.empty() && taken.size() + 1 < seconds.size()) {
    std::ranges::pop_heap(heap, later);
    const auto [probability, i] = heap.back();
    heap.pop_back();
    taken.push_back(i);
    tokens += double{probability};
    const uint32_t width = ++widths[i];
    if (width < candidates[i].most) {
      heap.emplace_back(candidates[i].chain[width], i);
      std::ranges::push_heap(heap, later);
    }
    if (tokens / seconds[taken.size()] <= best.rate()) continue;
    best.tokens = tokens;
    best.seconds = seconds[taken.size()];
    best.drafted = static_cast<uint32_t>(taken.size());
  }
  best.widths.assign(candidates.size(), 0);
  for (uint32_t k = 0; k < best.drafted; ++k) ++best.widths[taken[k]];
  return best;
}

}  // namespace mtlqwen
