// The memory of keys and values: every slot's addresses are there from the start, bundles of
// physical memory are bound to its blocks as it grows.
#pragma once
#include <cstdint>
#include <limits>
#include <vector>

#include "cache/bindings.hpp"
#include "cache/kv_layout.hpp"
#include "gpu/device.hpp"

namespace mtlqwen {

// Invariant: a block's bundle is mapped in all planes or in none. Calls stand between passes: no
// round of Commands may be in flight. One thread at a time; the Device outlives it.
class KvPool {
 public:
  static constexpr uint64_t kNoLimit = std::numeric_limits<uint64_t>::max();

  // max_bytes: see set_limit(). Takes addresses only; heaps come with the first reserve(). Throws
  // CapacityError, ModelError (see KvLayout), DeviceError.
  KvPool(Device& device, const KvShape& shape, uint64_t max_bytes = kNoLimit);
  ~KvPool();
  KvPool(const KvPool&) = delete;
  KvPool& operator=(const KvPool&) = delete;

  // One layer's K or V: (slots, slot_tokens, token_bytes).
  [[nodiscard]] Span plane(uint32_t plane) const;
  [[nodiscard]] uint64_t plane_address(uint32_t plane_index) const {
    return plane(plane_index).address;
  }
  [[nodiscard]] uint32_t slot_tokens() const { return layout_.slot_tokens(); }
  [[nodiscard]] const KvLayout& layout() const { return layout_; }

  // Physical memory for all slots together, rounded down to bundles; never more than they
  // can hold. Before the first reserve(). Throws CapacityError where not one block fits.
  void set_limit(uint64_t max_bytes);

  // The first n_tokens positions of the slot get memory; its contents are undefined. Throws
  // CapacityError and then has changed nothing.
  void reserve(uint32_t slot, uint32_t n_tokens);
  void release(uint32_t slot);  // all of the slot's memory is free again

  // Gives back all heaps but the first, where nothing is bound. Residency must not change while
  // other work waits: call it when the engine goes idle.
  void trim();

  [[nodiscard]] uint32_t reserved_tokens(uint32_t slot) const;
  // Blocks of the slot that n_tokens would need beyond those bound.
  [[nodiscard]] uint32_t missing_blocks(uint32_t slot, uint32_t n_tokens) const;
  [[nodiscard]] uint32_t max_bundles() const { return heaps_plan_.n_bundles; }
  [[nodiscard]] uint32_t bundles_bound() const { return bindings_.n_bound(); }
  // Those whose heap does not exist yet included.
  [[nodiscard]] uint32_t bundles_free() const { return max_bundles() - bundles_bound(); }
  [[nodiscard]] uint64_t bound_bytes() const { return bundles_bound() * layout_.bundle_bytes(); }
  [[nodiscard]] uint64_t heap_bytes() const;

  void check_integrity() const;  // throws std::logic_error that says which invariant fails

 private:
  void require_slot(uint32_t slot) const;
  void grow(uint32_t n_bundles);
  void unmap(uint32_t slot, uint32_t first_block, uint32_t n_blocks);

  Device& device_;
  KvLayout layout_;
  KvHeaps heaps_plan_;
  Bindings bindings_;
  std::vector<Buffer> buffers_;
  std::vector<Heap> heaps_;
};

}  // namespace mtlqwen
