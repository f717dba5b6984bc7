#include "cache/kv_pool.hpp"

#include <algorithm>
#include <exception>
#include <stdexcept>
#include <utility>

#include "base/error.hpp"
#include "base/math.hpp"

namespace mtlqwen {

KvPool::KvPool(Device& device, BundlePool& pool, const KvShape& shape)
    : device_(device), pool_(pool), layout_(shape, device.max_buffer_bytes()), bound_(shape.slots),
      pending_(shape.slots) {
  for (uint32_t i = 0; i < layout_.n_buffers(); ++i) {
    buffers_.push_back(
        device_.new_sparse_buffer(layout_.buffer_bytes(i), layout_.page_bytes(), concat("kv ", i)));
  }
}

KvPool::~KvPool() {
  try {
    for (uint32_t slot = 0; slot < layout_.slots(); ++slot) release(slot);
    unmap_window();
  } catch (const std::exception&) {
    // Out of memory for the list of runs: the bundles go with the pool, a moment later.
  }
}

Span KvPool::plane(uint32_t plane) const {
  const Buffer& buffer = buffers_.at(layout_.buffer_of(plane));
  return buffer.span().part(layout_.plane_offset(plane), layout_.slots_bytes());
}

void KvPool::reserve(uint32_t slot, uint32_t n_tokens, uint32_t kv_valid) {
  require_slot(slot);
  if (n_tokens > slot_tokens()) {
    throw CapacityError(concat("[cache] slot ", slot, ": context full (got ", n_tokens,
                               " tokens, want at most ", slot_tokens(), "); shorten the request"));
  }
  const uint32_t n_missing = missing_bundles(slot, n_tokens, kv_valid);
  if (n_missing == 0) return;
  const std::vector<uint32_t> fresh = pool_.take(n_missing);
  try {
    bind(slot, fresh, needed_copy(slot, n_tokens, kv_valid));
  } catch (...) {
    pool_.drop(fresh);
    throw;
  }
}

// The last of the fresh bundles takes the place of the one that is copied, the others follow those
// that are bound.
void KvPool::bind(uint32_t slot, std::span<const uint32_t> fresh,
                  const std::optional<PendingCopy>& copy) {
  std::vector<uint32_t>& blocks = bound_[slot];
  const std::span<const uint32_t> added = fresh.first(fresh.size() - (copy ? 1 : 0));
  blocks.reserve(blocks.size() + added.size());
  const uint64_t first_added = layout_.block_of(slot, static_cast<uint32_t>(blocks.size()));
  MappingPlan plan(pool_.heaps());
  layout_.map(plan, first_added, added);
  if (copy) {
    layout_.map(plan, layout_.staging_block(slot), {&copy->bundle, 1});
    layout_.map(plan, layout_.block_of(slot, copy->block), fresh.last(1));
  }
  try {
    apply(plan);
  } catch (...) {
    unmap(first_added, added.size());
    if (copy) unmap(layout_.staging_block(slot), 1);
    if (copy) map(layout_.block_of(slot, copy->block), {&copy->bundle, 1});
    throw;
  }
  blocks.insert(blocks.end(), added.begin(), added.end());
  if (!copy) return;
  blocks[copy->block] = fresh.back();
  pending_[slot] = copy;
}

void KvPool::adopt(uint32_t slot, std::span<const uint32_t> bundles) {
  require_slot(slot);
  if (!bound_[slot].empty() || bundles.size() > layout_.slot_blocks()) {
    throw std::logic_error(concat("[cache] slot ", slot, ": cannot adopt ", bundles.size(),
                                  " bundles (holds ", bound_[slot].size(), ", has room for ",
                                  layout_.slot_blocks(), ")"));
  }
  std::vector<uint32_t> blocks(bundles.begin(), bundles.end());
  map(layout_.block_of(slot, 0), bundles);
  pool_.share(bundles);
  bound_[slot] = std::move(blocks);
}

void KvPool::release(uint32_t slot) {
  require_slot(slot);
  if (pending_[slot]) drop_copy(slot);
  std::vector<uint32_t>& blocks = bound_[slot];
  if (blocks.empty()) return;
  unmap(layout_.block_of(slot, 0), blocks.size());
  pool_.drop(blocks);
  blocks.clear();
}

std::vector<BlockCopy> KvPool::pending_copies() const {
  std::vector<BlockCopy> copies;
  for (uint32_t slot = 0; slot < pending_.size(); ++slot) {
    if (!pending_[slot]) continue;
    for (uint32_t plane = 0; plane < layout_.n_planes(); ++plane) {
      const uint64_t to = layout_.block_of(slot, pending_[slot]->block);
      copies.push_back({.buffer = &buffers_[layout_.buffer_of(plane)],
                        .from = layout_.block_offset(plane, layout_.staging_block(slot)),
                        .to = layout_.block_offset(plane, to),
                        .bytes = pending_[slot]->n_tokens * layout_.token_bytes()});
    }
  }
  return copies;
}

void KvPool::copies_done() {
  for (uint32_t slot = 0; slot < pending_.size(); ++slot) {
    if (pending_[slot]) drop_copy(slot);
  }
}

void KvPool::drop_copy(uint32_t slot) {
  unmap(layout_.staging_block(slot), 1);
  pool_.drop({&pending_[slot]->bundle, 1});
  pending_[slot].reset();
}

void KvPool::map_window(std::span<const uint32_t> bundles) {
  if (!window_.empty() || bundles.size() > layout_.slot_blocks()) {
    throw std::logic_error(concat("[cache] window: cannot map ", bundles.size(), " bundles (holds ",
                                  window_.size(), ", has room for ", layout_.slot_blocks(), ")"));
  }
  std::vector<uint32_t> blocks(bundles.begin(), bundles.end());
  map(layout_.window_block(), bundles);
  pool_.share(bundles);
  window_ = std::move(blocks);
}

void KvPool::unmap_window() {
  if (window_.empty()) return;
  unmap(layout_.window_block(), window_.size());
  pool_.drop(window_);
  window_.clear();
}

WindowPlane KvPool::window(uint32_t plane) const {
  return {.buffer = &buffers_.at(layout_.buffer_of(plane)),
          .offset = layout_.block_offset(plane, layout_.window_block())};
}

void KvPool::forget_unconfirmed() {
  if (bundles_bound() != 0 || !window_.empty()) {
    throw std::logic_error("[cache] keys and values: mappings forgotten while bundles are bound");
  }
  for (const Buffer& buffer : buffers_) {
    const MappingRun all{.n_tiles = buffer.bytes() / layout_.page_bytes()};
    device_.update_mappings(buffer, nullptr, {&all, 1});
  }
}

uint32_t KvPool::reserved_tokens(uint32_t slot) const {
  if (layout_.n_planes() == 0) return slot_tokens();
  return static_cast<uint32_t>(bound_.at(slot).size()) * block_tokens();
}

uint32_t KvPool::blocks_of(uint32_t n_tokens) const {
  return layout_.n_planes() == 0 ? 0 : static_cast<uint32_t>(ceil_div(n_tokens, block_tokens()));
}

uint32_t KvPool::missing_blocks(uint32_t slot, uint32_t n_tokens) const {
  const auto n_bound = static_cast<uint32_t>(bound_.at(slot).size());
  return std::max(blocks_of(n_tokens), n_bound) - n_bound;
}

uint32_t KvPool::missing_bundles(uint32_t slot, uint32_t n_tokens, uint32_t kv_valid) const {
  return missing_blocks(slot, n_tokens) + (needed_copy(slot, n_tokens, kv_valid) ? 1 : 0);
}

std::optional<KvPool::PendingCopy> KvPool::needed_copy(uint32_t slot, uint32_t n_tokens,
                                                       uint32_t kv_valid) const {
  const uint32_t block = kv_valid / block_tokens();
  const uint32_t n_before = kv_valid % block_tokens();
  if (n_before == 0 || n_tokens <= kv_valid || block >= bound_.at(slot).size()) return {};
  const uint32_t bundle = bound_[slot][block];
  if (pool_.refs(bundle) == 1) return {};
  return PendingCopy{.block = block, .bundle = bundle, .n_tokens = n_before};
}

uint32_t KvPool::bundles_bound() const {
  std::vector<uint32_t> all;
  for (const std::vector<uint32_t>& blocks : bound_) {
    all.insert(all.end(), blocks.begin(), blocks.end());
  }
  std::sort(all.begin(), all.end());
  return static_cast<uint32_t>(std::unique(all.begin(), all.end()) - all.begin());
}

void KvPool::add_refs(std::span<uint32_t> refs) const {
  for (const std::vector<uint32_t>& blocks : bound_) {
    for (const uint32_t bundle : blocks) ++refs[bundle];
  }
  for (const std::optional<PendingCopy>& copy : pending_) {
    if (copy) ++refs[copy->bundle];
  }
  for (const uint32_t bundle : window_) ++refs[bundle];
}

void KvPool::require_slot(uint32_t slot) const {
  if (slot >= layout_.slots()) {
    throw std::out_of_range(concat("[cache] slot ", slot, ": only ", layout_.slots(), " exist"));
  }
}

void KvPool::map(uint64_t first_block, std::span<const uint32_t> bundles) {
  MappingPlan plan(pool_.heaps());
  layout_.map(plan, first_block, bundles);
  try {
    apply(plan);
  } catch (...) {
    unmap(first_block, bundles.size());
    throw;
  }
}

void KvPool::apply(const MappingPlan& plan) {
  for (const HeapMapping& mapping : plan.mappings()) {
    device_.update_mappings(buffers_[mapping.buffer], &pool_.heap(mapping.heap), mapping.runs);
  }
}

void KvPool::unmap(uint64_t first_block, uint64_t n_blocks) {
  if (n_blocks == 0) return;
  for (uint32_t i = 0; i < buffers_.size(); ++i) {
    device_.update_mappings(buffers_[i], nullptr, layout_.unmap_runs(i, first_block, n_blocks));
  }
}

}  // namespace mtlqwen
