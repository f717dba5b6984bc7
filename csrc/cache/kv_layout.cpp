#include "cache/kv_layout.hpp"

#include <algorithm>
#include <limits>
#include <optional>

#include "base/error.hpp"
#include "base/math.hpp"

namespace mtlqwen {
namespace {

constexpr uint64_t kPages[] = {256ULL << 10, 64ULL << 10, 16ULL << 10};

uint64_t largest_page(uint64_t block_bytes) {
  for (const uint64_t page : kPages) {
    if (block_bytes != 0 && block_bytes % page == 0) return page;
  }
  throw ModelError(concat("[cache] keys and values: a block is not whole pages (got ", block_bytes,
                          " bytes in each plane, want a multiple of ", kPages[2],
                          "); the model's kv heads are too small, raise block_tokens"));
}

}  // namespace

BundleShape bundle_shape(const KvShape& shape) {
  if (shape.n_planes == 0) return {};
  const uint64_t block_bytes = checked_mul(shape.token_bytes, shape.block_tokens).value_or(0);
  const uint64_t page = largest_page(block_bytes);
  return {.n_pieces = shape.n_planes, .piece_tiles = block_bytes / page, .page_bytes = page};
}

KvLayout::KvLayout(const KvShape& shape, uint64_t max_buffer_bytes)
    : shape_(shape), bundle_(bundle_shape(shape)) {
  const uint64_t tokens = align_up(shape.context, shape.block_tokens);
  const uint64_t blocks = (uint64_t{shape.slots} + 1) * (tokens / shape.block_tokens) + shape.slots;
  const std::optional<uint64_t> plane =
      checked_mul(shape.token_bytes * shape.block_tokens, shape.n_planes == 0 ? 0 : blocks);
  const uint64_t limit = std::min<uint64_t>(max_buffer_bytes, 1ULL << 46);  // of an address space
  if (tokens > std::numeric_limits<uint32_t>::max() || !plane || *plane > limit) {
    throw CapacityError(concat("[cache] keys and values: ", shape.slots, " slots of ",
                               shape.context, " tokens do not fit one buffer of the device (got ",
                               plane ? concat(*plane) : "more than 2^64", " bytes, want at most ",
                               limit, "); lower context or slots"));
  }
  slot_tokens_ = static_cast<uint32_t>(tokens);
  plane_bytes_ = *plane;
  const uint64_t planes = plane_bytes_ == 0 ? 1 : limit / plane_bytes_;
  planes_per_buffer_ =
      static_cast<uint32_t>(std::clamp<uint64_t>(planes, 1, std::max(n_planes(), 1U)));
}

uint64_t KvLayout::slots_bytes() const {
  return uint64_t{slots()} * slot_tokens_ * shape_.token_bytes;
}

uint32_t KvLayout::n_buffers() const {
  return static_cast<uint32_t>(ceil_div(n_planes(), planes_per_buffer_));
}

uint64_t KvLayout::buffer_bytes(uint32_t buffer) const {
  const uint32_t first = buffer * planes_per_buffer_;
  return std::min(planes_per_buffer_, n_planes() - first) * plane_bytes_;
}

uint64_t KvLayout::plane_offset(uint32_t plane) const {
  return plane % planes_per_buffer_ * plane_bytes_;
}

uint64_t KvLayout::block_offset(uint32_t plane, uint64_t block) const {
  return plane_offset(plane) + block * block_tiles() * page_bytes();
}

uint64_t KvLayout::tile(uint32_t plane, uint64_t block) const {
  return block_offset(plane, block) / page_bytes();
}

void KvLayout::map(MappingPlan& plan, uint64_t first_block,
                   std::span<const uint32_t> bundles) const {
  for (uint32_t plane = 0; plane < n_planes(); ++plane) {
    for (uint32_t i = 0; i < bundles.size(); ++i) {
      plan.add(buffer_of(plane), tile(plane, first_block + i), bundles[i], plane);
    }
  }
}

std::vector<MappingRun> KvLayout::unmap_runs(uint32_t buffer, uint64_t first_block,
                                             uint64_t n_blocks) const {
  std::vector<MappingRun> runs;
  const uint32_t first = buffer * planes_per_buffer_;
  const uint32_t last = std::min(first + planes_per_buffer_, n_planes());
  for (uint32_t plane = first; plane < last; ++plane) {
    runs.push_back({.buffer_tile = tile(plane, first_block),
                    .n_tiles = n_blocks * block_tiles(),
                    .heap_tile = 0});
  }
  return runs;
}

}  // namespace mtlqwen
