#include "cache/gdn_banks.hpp"

#include <exception>
#include <optional>
#include <utility>

#include "base/error.hpp"
#include "base/math.hpp"

namespace mtlqwen {
namespace {

// The largest page of which rounding up wastes at most 1/64 of a bank.
uint64_t choose_page(uint64_t bytes) {
  for (const uint64_t page : {256ULL << 10, 64ULL << 10}) {
    if (align_up(bytes, page) - bytes <= bytes / 64) return page;
  }
  return 16ULL << 10;
}

uint64_t checked_bytes(uint64_t n_floats, uint32_t slots, uint64_t limit) {
  const std::optional<uint64_t> bytes = checked_mul(n_floats, sizeof(float));
  const std::optional<uint64_t> all = checked_mul(bytes.value_or(limit), 2ULL * slots);
  if (!bytes || !all || *all > limit - limit / 32) {  // room for rounding up to pages
    throw CapacityError(concat("[cache] GDN states: ", slots, " slots of 2 banks of ", n_floats,
                               " floats do not fit one buffer of the device (want at most ", limit,
                               " bytes); lower slots"));
  }
  return *bytes;
}

}  // namespace

GdnBanks::GdnBanks(Device& device, uint32_t slots, uint64_t n_floats)
    : device_(device), page_bytes_(0), bank_bytes_(0), heaps_(slots), mapped_(slots, false),
      current_(slots, 0) {
  const uint64_t bytes = checked_bytes(n_floats, slots, device.max_buffer_bytes());
  page_bytes_ = choose_page(bytes);
  bank_bytes_ = align_up(bytes, page_bytes_);
  if (bank_bytes_ == 0) return;  // a model without GDN layers
  buffer_ = device_.new_sparse_buffer(2 * slots * bank_bytes_, page_bytes_, "gdn banks");
}

GdnBanks::~GdnBanks() {
  try {
    for (uint32_t slot = 0; slot < heaps_.size(); ++slot) {
      if (heaps_[slot].bytes() == 0) continue;
      const MappingRun run = run_of(slot);
      device_.update_mappings(buffer_, nullptr, {&run, 1});
    }
  } catch (const std::exception&) {
    // Out of memory for the list of runs: the heaps go with their buffer, a moment later.
  }
}

void GdnBanks::ensure(uint32_t slot) {
  if (mapped_.at(slot) || bank_bytes_ == 0) return;
  if (heaps_[slot].bytes() == 0) {
    heaps_[slot] = device_.new_heap(2 * bank_bytes_, page_bytes_, concat("gdn heap ", slot));
    heap_bytes_ += heaps_[slot].bytes();
  }
  const MappingRun run = run_of(slot);
  device_.update_mappings(buffer_, &heaps_[slot], {&run, 1});
  mapped_[slot] = true;
}

MappingRun GdnBanks::run_of(uint32_t slot) const {
  const uint64_t tiles = 2 * bank_bytes_ / page_bytes_;
  return {.buffer_tile = slot * tiles, .n_tiles = tiles, .heap_tile = 0};
}

}  // namespace mtlqwen
