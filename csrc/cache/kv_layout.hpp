// Where keys and values stand: pure arithmetic, no device.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "cache/bundle_layout.hpp"

namespace mtlqwen {

struct KvShape {
  uint32_t n_planes = 0;     // K and V of each attention layer: 2 planes a layer
  uint64_t token_bytes = 0;  // of one plane: n_kv_heads * head_dim * sizeof(half)
  uint32_t slots = 0;
  uint32_t context = 0;         // tokens of one slot
  uint32_t block_tokens = 128;  // token positions of one block
};

// Of one block: a piece for each plane, in the largest pages that it is whole. Throws ModelError
// where a block is not whole pages.
[[nodiscard]] BundleShape bundle_shape(const KvShape& shape);

// Virtual order: plane, slot, block, tile; whole planes are spread over as many sparse buffers as
// the device's limit asks for. Behind the slots of a plane stand a staging block for each of them
// and the window, one slot's worth of blocks.
class KvLayout {
 public:
  // Throws ModelError, see bundle_shape(); CapacityError where one plane does not fit the device's buffers.
  KvLayout(const KvShape& shape, uint64_t max_buffer_bytes);

  [[nodiscard]] uint32_t n_planes() const { return shape_.n_planes; }
  [[nodiscard]] uint32_t slots() const { return shape_.slots; }
  [[nodiscard]] uint32_t block_tokens() const { return shape_.block_tokens; }
  [[nodiscard]] uint32_t slot_tokens() const { return slot_tokens_; }  // context, in whole blocks
  [[nodiscard]] uint32_t slot_blocks() const { return slot_tokens_ / shape_.block_tokens; }
  [[nodiscard]] uint64_t token_bytes() const { return shape_.token_bytes; }
  [[nodiscard]] uint64_t page_bytes() const { return bundle_.page_bytes; }    // of one tile
  [[nodiscard]] uint64_t block_tiles() const { return bundle_.piece_tiles; }  // in one plane
  [[nodiscard]] uint64_t plane_bytes() const { return plane_bytes_; }         // all of it
  [[nodiscard]] uint64_t slots_bytes() const;  // the slots of a plane

  [[nodiscard]] uint32_t n_buffers() const;
  [[nodiscard]] uint64_t buffer_bytes(uint32_t buffer) const;
  [[nodiscard]] uint32_t buffer_of(uint32_t plane) const { return plane / planes_per_buffer_; }
  [[nodiscard]] uint64_t plane_offset(uint32_t plane) const;  // bytes in its buffer

  // Blocks of a plane are counted through all slots, staging blocks and the window.
  [[nodiscard]] uint64_t block_of(uint32_t slot, uint32_t block) const {
    return uint64_t{slot} * slot_blocks() + block;
  }
  [[nodiscard]] uint64_t staging_block(uint32_t slot) const { return block_of(slots(), slot); }
  [[nodiscard]] uint64_t window_block() const { return staging_block(slots()); }
  [[nodiscard]] uint64_t block_offset(uint32_t plane, uint64_t block) const;  // bytes in its buffer

  // For bundles bound to consecutive blocks.
  void map(MappingPlan& plan, uint64_t first_block, std::span<const uint32_t> bundles) const;
  // For consecutive blocks, in the planes of one buffer.
  [[nodiscard]] std::vector<MappingRun> unmap_runs(uint32_t buffer, uint64_t first_block,
                                                   uint64_t n_blocks) const;

 private:
  [[nodiscard]] uint64_t tile(uint32_t plane, uint64_t block) const;

  KvShape shape_;
  BundleShape bundle_;
  uint32_t slot_tokens_ = 0;
  uint64_t plane_bytes_ = 0;
  uint32_t planes_per_buffer_ = 0;
};

}  // namespace mtlqwen
