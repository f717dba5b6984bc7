// The memory of keys and values: every slot's addresses are there from the start, bundles of the
// pool are bound to its blocks as it grows.
#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "cache/bundle_pool.hpp"
#include "cache/kv_layout.hpp"
#include "gpu/device.hpp"

namespace mtlqwen {

// Of the first tokens of a block in one plane, within one buffer: offsets and size in bytes.
struct BlockCopy {
  const Buffer* buffer = nullptr;
  uint64_t from = 0;
  uint64_t to = 0;
  uint64_t bytes = 0;
};

// Where a plane of the window stands.
struct WindowPlane {
  const Buffer* buffer = nullptr;
  uint64_t offset = 0;  // bytes; (tokens, token_bytes) from there on
};

// A bundle may be bound in several slots; whoever else owns it reads it. Invariants: a block's
// bundle is mapped in all planes or in none; the blocks of a slot are bound from the first on,
// without gaps; a block that a pass writes is bound to a bundle without other owners. Calls stand
// between passes: no round of Commands may be in flight. One thread at a time; the Device and the
// pool outlive it.
class KvPool {
 public:
  // Takes addresses only. Throws CapacityError, ModelError (see KvLayout), DeviceError.
  KvPool(Device& device, BundlePool& pool, const KvShape& shape);
  ~KvPool();
  KvPool(const KvPool&) = delete;
  KvPool& operator=(const KvPool&) = delete;

  // One layer's K or V: (slots, slot_tokens, token_bytes).
  [[nodiscard]] Span plane(uint32_t plane) const;
  [[nodiscard]] uint64_t plane_address(uint32_t plane_index) const {
    return plane(plane_index).address;
  }
  [[nodiscard]] uint32_t slot_tokens() const { return layout_.slot_tokens(); }
  [[nodiscard]] uint32_t block_tokens() const { return layout_.block_tokens(); }
  [[nodiscard]] const KvLayout& layout() const { return layout_; }

  // The first n_tokens positions of the slot get memory that a pass may write from kv_valid on; what
  // is new has undefined contents. Copy on write: where the block of kv_valid holds tokens before it
  // and its bundle has other owners, it gets a fresh one, and a copy is pending. Throws
  // CapacityError and then has changed nothing.
  void reserve(uint32_t slot, uint32_t n_tokens, uint32_t kv_valid);
  // Binds bundles, which get one more owner each, to the first blocks of an empty slot. An exception
  // has changed nothing.
  void adopt(uint32_t slot, std::span<const uint32_t> bundles);
  void release(uint32_t slot);  // drops all of the slot's bundles, and its pending copy

  // To be encoded before whatever reads or writes the slots, with a barrier behind them. They stay
  // listed until they are known to be done: a pass that was stopped may not have made them. Until
  // then the copied block must not be shared.
  [[nodiscard]] std::vector<BlockCopy> pending_copies() const;
  [[nodiscard]] bool has_pending_copy(uint32_t slot) const { return pending_.at(slot).has_value(); }
  void copies_done();

  // The window: addresses through which the bundles of a checkpoint, and no slot's, are read or
  // written. It owns them while they are mapped.
  void map_window(std::span<const uint32_t> bundles);
  void unmap_window();
  [[nodiscard]] WindowPlane window(uint32_t plane) const;

  // After a failed pass, which may have been an unmapping: with nothing bound, nothing is mapped.
  void forget_unconfirmed();

  [[nodiscard]] std::span<const uint32_t> bundles(uint32_t slot) const { return bound_.at(slot); }
  // All positions where there are no planes.
  [[nodiscard]] uint32_t reserved_tokens(uint32_t slot) const;
  // Bundles that reserve() would take.
  [[nodiscard]] uint32_t missing_bundles(uint32_t slot, uint32_t n_tokens, uint32_t kv_valid) const;
  // Blocks that n_tokens tokens need; none without planes.
  [[nodiscard]] uint32_t blocks_of(uint32_t n_tokens) const;
  [[nodiscard]] uint32_t bundles_bound() const;  // to any block, each counted once
  [[nodiscard]] uint64_t bound_bytes() const { return bundles_bound() * pool_.bundle_bytes(); }

  void add_refs(std::span<uint32_t> refs) const;  // see BundlePool::check_integrity()

 private:
  // The bundle that the copy reads has an owner in it.
  struct PendingCopy {
    uint32_t block = 0;
    uint32_t bundle = 0;
    uint32_t n_tokens = 0;
  };
  void require_slot(uint32_t slot) const;
  [[nodiscard]] uint32_t missing_blocks(uint32_t slot, uint32_t n_tokens) const;
  [[nodiscard]] std::optional<PendingCopy> needed_copy(uint32_t slot, uint32_t n_tokens,
                                                       uint32_t kv_valid) const;
  void bind(uint32_t slot, std::span<const uint32_t> fresh, const std::optional<PendingCopy>& copy);
  void drop_copy(uint32_t slot);
  void map(uint64_t first_block, std::span<const uint32_t> bundles);
  void apply(const MappingPlan& plan);
  void unmap(uint64_t first_block, uint64_t n_blocks);

  Device& device_;
  BundlePool& pool_;
  KvLayout layout_;
  std::vector<std::vector<uint32_t>> bound_;         // (slots, blocks) bundles
  std::vector<std::optional<PendingCopy>> pending_;  // (slots)
  std::vector<uint32_t> window_;
  std::vector<Buffer> buffers_;
};

}  // namespace mtlqwen
