#include "cache/kv_pool.hpp"

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "base/error.hpp"

namespace mtlqwen {

KvPool::KvPool(Device& device, const KvShape& shape, uint64_t max_bytes)
    : device_(device), layout_(shape, device.max_buffer_bytes()), bindings_(shape.slots) {
  set_limit(max_bytes);
  for (uint32_t i = 0; i < layout_.n_buffers(); ++i) {
    buffers_.push_back(
        device_.new_sparse_buffer(layout_.buffer_bytes(i), layout_.page_bytes(), concat("kv ", i)));
  }
}

void KvPool::set_limit(uint64_t max_bytes) {
  if (!heaps_.empty()) throw std::logic_error("[cache] limit: set after the first use");
  const KvHeaps plan = layout_.heaps(max_bytes);
  if (layout_.n_planes() != 0 && plan.n_bundles == 0) {
    throw CapacityError(concat("[cache] keys and values: no room for one block (got ", max_bytes,
                               " bytes, want ", layout_.bundle_bytes(),
                               "); raise the memory budget"));
  }
  heaps_.reserve(plan.n_heaps());
  heaps_plan_ = plan;
}

KvPool::~KvPool() {
  try {
    for (uint32_t slot = 0; slot < layout_.slots(); ++slot) release(slot);
  } catch (const std::exception&) {
    // Out of memory for the list of runs: the heaps go with their buffers, a moment later.
  }
}

Span KvPool::plane(uint32_t plane) const {
  const Buffer& buffer = buffers_.at(layout_.buffer_of(plane));
  return buffer.span().part(layout_.plane_offset(plane), layout_.plane_bytes());
}

void KvPool::reserve(uint32_t slot, uint32_t n_tokens) {
  require_slot(slot);
  if (n_tokens > slot_tokens()) {
    throw CapacityError(concat("[cache] slot ", slot, ": context full (got ", n_tokens,
                               " tokens, want at most ", slot_tokens(), "); shorten the request"));
  }
  const uint32_t n_bound = bindings_.n_blocks(slot);
  const uint32_t n_missing = missing_blocks(slot, n_tokens);
  if (n_missing == 0) return;
  if (n_missing > bundles_free()) {
    throw CapacityError(concat("[cache] keys and values: memory is full (got ", bundles_free(),
                               " free blocks of ", max_bundles(), ", want ", n_missing,
                               "); wait for another sequence or raise the memory budget"));
  }
  grow(n_missing);
  const std::span<const uint32_t> bundles = bindings_.bind(slot, n_missing);
  try {
    for (const KvMapping& mapping : layout_.map_runs(slot, n_bound, bundles, heaps_plan_)) {
      device_.update_mappings(buffers_[mapping.buffer], &heaps_[mapping.heap], mapping.runs);
    }
  } catch (...) {
    // A mapping that stays is harmless: nothing reads it before the next bind maps over it.
    bindings_.unbind(slot, n_bound);
    throw;
  }
}

void KvPool::release(uint32_t slot) {
  require_slot(slot);
  const uint32_t n_blocks = bindings_.n_blocks(slot);
  if (n_blocks == 0) return;
  unmap(slot, 0, n_blocks);
  bindings_.unbind(slot);
}

void KvPool::trim() {
  if (bindings_.n_bound() != 0 || heaps_.size() <= 1) return;
  Bindings bindings(layout_.slots());
  bindings.grow(heaps_plan_.bundles_in(0));
  bindings_ = std::move(bindings);
  heaps_.resize(1);
}

uint32_t KvPool::missing_blocks(uint32_t slot, uint32_t n_tokens) const {
  if (layout_.n_planes() == 0) return 0;
  const uint32_t n_bound = bindings_.n_blocks(slot);
  return std::max(static_cast<uint32_t>(ceil_div(n_tokens, kBlockTokens)), n_bound) - n_bound;
}

uint32_t KvPool::reserved_tokens(uint32_t slot) const {
  return bindings_.n_blocks(slot) * kBlockTokens;
}

uint64_t KvPool::heap_bytes() const {
  uint64_t bytes = 0;
  for (const Heap& heap : heaps_) bytes += heap.bytes();
  return bytes;
}

void KvPool::check_integrity() const {
  bindings_.check_integrity();
  uint64_t in_heaps = 0;
  for (uint32_t heap = 0; heap < heaps_.size(); ++heap) in_heaps += heaps_plan_.bundles_in(heap);
  if (in_heaps != bindings_.n_total() || heap_bytes() != in_heaps * layout_.bundle_bytes()) {
    throw std::logic_error(concat("[cache] heaps: ", heaps_.size(), " heaps of ", heap_bytes(),
                                  " bytes hold ", in_heaps, " bundles, ", bindings_.n_total(),
                                  " exist"));
  }
}

void KvPool::require_slot(uint32_t slot) const {
  if (slot >= layout_.slots()) {
    throw std::out_of_range(concat("[cache] slot ", slot, ": only ", layout_.slots(), " exist"));
  }
}

// Makes heaps until n_bundles are free.
void KvPool::grow(uint32_t n_bundles) {
  while (bindings_.n_free() < n_bundles) {
    const auto heap = static_cast<uint32_t>(heaps_.size());
    const uint32_t n_new = heaps_plan_.bundles_in(heap);
    Heap memory = device_.new_heap(n_new * layout_.bundle_bytes(), layout_.page_bytes(),
                                   concat("kv heap ", heap));
    bindings_.grow(n_new);
    heaps_.push_back(std::move(memory));  // cannot throw: room was reserved
  }
}

void KvPool::unmap(uint32_t slot, uint32_t first_block, uint32_t n_blocks) {
  for (uint32_t i = 0; i < buffers_.size(); ++i) {
    device_.update_mappings(buffers_[i], nullptr,
                            layout_.unmap_runs(i, slot, first_block, n_blocks));
  }
}

}  // namespace mtlqwen
