// Where keys and values stand: pure arithmetic, no device.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "base/math.hpp"
#include "base/types.hpp"
#include "gpu/device.hpp"

namespace mtlqwen {

struct KvShape {
  uint32_t n_planes = 0;     // K and V of each attention layer: 2 planes a layer
  uint64_t token_bytes = 0;  // of one plane: n_kv_heads * head_dim * sizeof(half)
  uint32_t slots = 0;
  uint32_t context = 0;  // tokens of one slot
};

// How bundles are dealt to heaps: bundle b is number b % heap_bundles of heap b / heap_bundles; the
// last heap may hold fewer.
struct KvHeaps {
  uint32_t n_bundles = 0;
  uint32_t heap_bundles = 1;

  [[nodiscard]] uint32_t n_heaps() const {
    return static_cast<uint32_t>(ceil_div(n_bundles, heap_bundles));
  }
  [[nodiscard]] uint32_t bundles_in(uint32_t heap) const;
};

// Runs to be mapped from one heap into one sparse buffer by one call.
struct KvMapping {
  uint32_t buffer = 0;
  uint32_t heap = 0;
  std::vector<MappingRun> runs;
};

// Virtual order: plane, slot, block, tile; whole planes are spread over as many sparse buffers as
// the device's limit asks for. Physical order within a heap: plane, bundle, tile, so that adjacent
// bundles bound to adjacent blocks make one run a plane, however long.
class KvLayout {
 public:
  // Throws ModelError where a block is not whole pages, CapacityError where one plane does not fit
  // the device's buffers.
  KvLayout(const KvShape& shape, uint64_t max_buffer_bytes);

  [[nodiscard]] uint32_t n_planes() const { return n_planes_; }
  [[nodiscard]] uint32_t slots() const { return slots_; }
  [[nodiscard]] uint32_t slot_tokens() const { return slot_tokens_; }  // context, in whole blocks
  [[nodiscard]] uint32_t slot_blocks() const { return slot_tokens_ / kBlockTokens; }
  [[nodiscard]] uint64_t page_bytes() const { return page_bytes_; }    // of one tile
  [[nodiscard]] uint64_t block_tiles() const { return block_tiles_; }  // of a block in one plane
  [[nodiscard]] uint64_t bundle_bytes() const { return n_planes_ * block_tiles_ * page_bytes_; }
  [[nodiscard]] uint64_t plane_bytes() const { return plane_bytes_; }

  [[nodiscard]] uint32_t n_buffers() const;
  [[nodiscard]] uint64_t buffer_bytes(uint32_t buffer) const;
  [[nodiscard]] uint32_t buffer_of(uint32_t plane) const { return plane / planes_per_buffer_; }
  [[nodiscard]] uint64_t plane_offset(uint32_t plane) const;  // bytes in its buffer
  [[nodiscard]] uint64_t tile(uint32_t plane, uint32_t slot, uint32_t block) const;

  // As many bundles as all slots can hold, or as fit max_bytes; in heaps of up to 64 MiB.
  [[nodiscard]] KvHeaps heaps(uint64_t max_bytes) const;

  // For bundles bound to consecutive blocks of a slot.
  [[nodiscard]] std::vector<KvMapping> map_runs(uint32_t slot, uint32_t first_block,
                                                std::span<const uint32_t> bundles,
                                                const KvHeaps& heaps) const;
  // For consecutive blocks of a slot, in the planes of one buffer.
  [[nodiscard]] std::vector<MappingRun> unmap_runs(uint32_t buffer, uint32_t slot,
                                                   uint32_t first_block, uint32_t n_blocks) const;

 private:
  uint32_t n_planes_;
  uint32_t slots_;
  uint32_t slot_tokens_ = 0;
  uint64_t page_bytes_ = 0;
  uint64_t block_tiles_ = 0;
  uint64_t plane_bytes_ = 0;
  uint32_t planes_per_buffer_ = 0;
};

}  // namespace mtlqwen
