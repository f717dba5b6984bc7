#include "cache/kv_layout.hpp"

#include <algorithm>
#include <limits>
#include <map>
#include <optional>
#include <utility>

#include "base/error.hpp"

namespace mtlqwen {
namespace {

constexpr uint64_t kHeapBytes = 64ULL << 20;
constexpr uint64_t kPages[] = {256ULL << 10, 64ULL << 10, 16ULL << 10};

uint64_t largest_page(uint64_t block_bytes) {
  for (const uint64_t page : kPages) {
    if (block_bytes != 0 && block_bytes % page == 0) return page;
  }
  throw ModelError(concat("[cache] keys and values: a block is not whole pages (got ", block_bytes,
                          " bytes in each plane, want a multiple of ", kPages[2],
                          "); the model's kv heads are too small"));
}

// Adds a run, as part of the last one where it continues that in the buffer and in the heap.
void append(std::vector<MappingRun>& runs, const MappingRun& run) {
  if (!runs.empty()) {
    MappingRun& last = runs.back();
    if (last.buffer_tile + last.n_tiles == run.buffer_tile &&
        last.heap_tile + last.n_tiles == run.heap_tile) {
      last.n_tiles += run.n_tiles;
      return;
    }
  }
  runs.push_back(run);
}

}  // namespace

uint32_t KvHeaps::bundles_in(uint32_t heap) const {
  return std::min(heap_bundles, n_bundles - heap * heap_bundles);
}

KvLayout::KvLayout(const KvShape& shape, uint64_t max_buffer_bytes)
    : n_planes_(shape.n_planes), slots_(shape.slots) {
  const uint64_t tokens = align_up(shape.context, kBlockTokens);
  const std::optional<uint64_t> block_bytes = checked_mul(shape.token_bytes, kBlockTokens);
  page_bytes_ = largest_page(block_bytes.value_or(0));
  block_tiles_ = *block_bytes / page_bytes_;
  const std::optional<uint64_t> plane = checked_mul(*block_bytes, slots_ * (tokens / kBlockTokens));
  const uint64_t limit = std::min<uint64_t>(max_buffer_bytes, 1ULL << 46);  // of an address space
  if (tokens > std::numeric_limits<uint32_t>::max() || !plane || *plane > limit) {
    throw CapacityError(concat("[cache] keys and values: ", slots_, " slots of ", shape.context,
                               " tokens do not fit one buffer of the device (got ",
                               plane ? concat(*plane) : "more than 2^64", " bytes, want at most ",
                               limit, "); lower context or slots"));
  }
  slot_tokens_ = static_cast<uint32_t>(tokens);
  plane_bytes_ = *plane;
  const uint64_t planes = plane_bytes_ == 0 ? 1 : limit / plane_bytes_;
  planes_per_buffer_ =
      static_cast<uint32_t>(std::clamp<uint64_t>(planes, 1, std::max(n_planes_, 1U)));
}

uint32_t KvLayout::n_buffers() const {
  return static_cast<uint32_t>(ceil_div(n_planes_, planes_per_buffer_));
}

uint64_t KvLayout::buffer_bytes(uint32_t buffer) const {
  const uint32_t first = buffer * planes_per_buffer_;
  return std::min(planes_per_buffer_, n_planes_ - first) * plane_bytes_;
}

uint64_t KvLayout::plane_offset(uint32_t plane) const {
  return plane % planes_per_buffer_ * plane_bytes_;
}

uint64_t KvLayout::tile(uint32_t plane, uint32_t slot, uint32_t block) const {
  const uint64_t block_in_plane = uint64_t{slot} * slot_blocks() + block;
  return plane_offset(plane) / page_bytes_ + block_in_plane * block_tiles_;
}

KvHeaps KvLayout::heaps(uint64_t max_bytes) const {
  const uint64_t bytes = std::max<uint64_t>(bundle_bytes(), 1);
  const uint64_t wanted = uint64_t{slots_} * slot_blocks();
  const uint64_t n_bundles = std::min({wanted, max_bytes / bytes, uint64_t{1} << 31});
  const uint64_t heap_bundles =
      std::clamp<uint64_t>(kHeapBytes / bytes, 1, std::max<uint64_t>(n_bundles, 1));
  return {.n_bundles = static_cast<uint32_t>(n_bundles),
          .heap_bundles = static_cast<uint32_t>(heap_bundles)};
}

std::vector<KvMapping> KvLayout::map_runs(uint32_t slot, uint32_t first_block,
                                          std::span<const uint32_t> bundles,
                                          const KvHeaps& heaps) const {
  std::map<std::pair<uint32_t, uint32_t>, std::vector<MappingRun>> runs;  // by (buffer, heap)
  for (uint32_t plane = 0; plane < n_planes_; ++plane) {
    for (uint32_t i = 0; i < bundles.size(); ++i) {
      const uint32_t heap = bundles[i] / heaps.heap_bundles;
      const uint64_t row =
          uint64_t{plane} * heaps.bundles_in(heap) + bundles[i] % heaps.heap_bundles;
      append(runs[{buffer_of(plane), heap}], {.buffer_tile = tile(plane, slot, first_block + i),
                                              .n_tiles = block_tiles_,
                                              .heap_tile = row * block_tiles_});
    }
  }
  std::vector<KvMapping> mappings;
  for (auto& [key, list] : runs) {
    mappings.push_back({.buffer = key.first, .heap = key.second, .runs = std::move(list)});
  }
  return mappings;
}

std::vector<MappingRun> KvLayout::unmap_runs(uint32_t buffer, uint32_t slot, uint32_t first_block,
                                             uint32_t n_blocks) const {
  std::vector<MappingRun> runs;
  const uint32_t first = buffer * planes_per_buffer_;
  const uint32_t last = std::min(first + planes_per_buffer_, n_planes_);
  for (uint32_t plane = first; plane < last; ++plane) {
    runs.push_back({.buffer_tile = tile(plane, slot, first_block),
                    .n_tiles = n_blocks * block_tiles_,
                    .heap_tile = 0});
  }
  return runs;
}

}  // namespace mtlqwen
