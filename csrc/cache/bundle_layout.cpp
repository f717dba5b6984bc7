#include "cache/bundle_layout.hpp"

#include <algorithm>

#include "base/math.hpp"

namespace mtlqwen {

namespace {

constexpr uint64_t kHeapBytes = 64ULL << 20;
constexpr uint64_t kMaxBundles = 1ULL << 31;

}  // namespace

uint32_t BundleHeaps::n_heaps() const {
  return static_cast<uint32_t>(ceil_div(n_bundles, heap_bundles));
}

uint32_t BundleHeaps::bundles_in(uint32_t heap) const {
  return std::min(heap_bundles, n_bundles - heap * heap_bundles);
}

uint64_t BundleHeaps::heap_tile(uint32_t bundle, uint32_t piece) const {
  const uint64_t row = uint64_t{piece} * bundles_in(heap_of(bundle)) + bundle % heap_bundles;
  return row * shape.piece_tiles;
}

BundleHeaps plan_heaps(const BundleShape& shape, uint64_t max_bytes, uint64_t wanted) {
  const uint64_t n_bundles = std::min({wanted, max_bytes / shape.bytes(), kMaxBundles});
  const uint64_t heap_bundles =
      std::clamp<uint64_t>(kHeapBytes / shape.bytes(), 1, std::max<uint64_t>(n_bundles, 1));
  return {.shape = shape,
          .n_bundles = static_cast<uint32_t>(n_bundles),
          .heap_bundles = static_cast<uint32_t>(heap_bundles)};
}

void MappingPlan::add(uint32_t buffer, uint64_t buffer_tile, uint32_t bundle, uint32_t piece) {
  const uint64_t n_tiles = heaps_.shape.piece_tiles;
  const uint64_t heap_tile = heaps_.heap_tile(bundle, piece);
  std::vector<MappingRun>& runs = runs_[{buffer, heaps_.heap_of(bundle)}];
  if (!runs.empty()) {
    MappingRun& last = runs.back();
    if (last.buffer_tile + last.n_tiles == buffer_tile &&
        last.heap_tile + last.n_tiles == heap_tile) {
      last.n_tiles += n_tiles;
      return;
    }
  }
  runs.push_back({.buffer_tile = buffer_tile, .n_tiles = n_tiles, .heap_tile = heap_tile});
}

std::vector<HeapMapping> MappingPlan::mappings() const {
  std::vector<HeapMapping> mappings;
  for (const auto& [key, runs] : runs_) {
    mappings.push_back({.buffer = key.first, .heap = key.second, .runs = runs});
  }
  return mappings;
}

}  // namespace mtlqwen
