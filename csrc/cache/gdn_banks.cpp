#include "cache/gdn_banks.hpp"

#include <algorithm>
#include <exception>
#include <functional>
#include <optional>
#include <stdexcept>
#include <utility>

#include "base/error.hpp"
#include "base/math.hpp"

namespace mtlqwen {
namespace {

constexpr uint64_t kMaxBanks = 1ULL << 20;

// Whole bundles for n_floats.
uint64_t bundles_for(uint64_t n_floats, uint64_t bundle_bytes) {
  const std::optional<uint64_t> bytes = checked_mul(n_floats, sizeof(float));
  const uint64_t bundles = bytes ? ceil_div(*bytes, bundle_bytes) : kMaxBanks;
  if (bundles < kMaxBanks) return bundles;
  throw CapacityError(concat("[cache] GDN states: too large (got ", n_floats,
                             " floats in a bank); the model does not fit this device"));
}

}  // namespace

GdnBanks::GdnBanks(Device& device, BundlePool& pool, uint64_t n_floats, uint32_t least,
                   uint64_t max_bytes, uint64_t most_ranges)
    : device_(device), pool_(pool),
      bank_bundles_(static_cast<uint32_t>(bundles_for(n_floats, pool.bundle_bytes()))),
      bank_bytes_(bank_bundles_ * pool.bundle_bytes()), most_ranges_(most_ranges) {
  if (bank_bundles_ == 0) {
    max_banks_ = kMaxBanks;
    return;
  }
  const uint64_t limit = device.max_buffer_bytes() / bank_bytes_;
  if (least > limit) {
    throw CapacityError(concat("[cache] GDN states: ", least, " banks of ", n_floats,
                               " floats do not fit one buffer of the device (want at most ", limit,
                               "); lower slots"));
  }
  max_banks_ = static_cast<uint32_t>(
      std::clamp<uint64_t>(max_bytes / bank_bytes_, least, std::min(limit, kMaxBanks)));
  buffer_ = device_.new_sparse_buffer(max_banks_ * bank_bytes_, pool.heaps().shape.page_bytes,
                                      "gdn banks");
}

GdnBanks::~GdnBanks() {
  try {
    std::vector<uint32_t> all;
    for (uint32_t bank = 0; bank < banks_.size(); ++bank) {
      if (banks_[bank].has_memory) all.push_back(bank);
    }
    unmap(all);
    for (const uint32_t bank : all) pool_.drop(banks_[bank].bundles);
  } catch (const std::exception&) {
    // Out of memory for the list of runs: the bundles go with the pool, a moment later.
  }
}

uint32_t GdnBanks::take() {
  if (spares_.empty()) add_spare();
  const uint32_t bank = spares_.back();
  if (!banks_[bank].is_mapped) map(bank);
  spares_.pop_back();
  banks_[bank].refs = 1;
  ++n_owned_;
  return bank;
}

void GdnBanks::drop(uint32_t bank) noexcept {
  if (--banks_[bank].refs != 0) return;
  spares_.push_back(bank);
  --n_owned_;
}

void GdnBanks::add_spare() {
  const auto unused =
      std::find_if(banks_.begin(), banks_.end(), [](const Bank& bank) { return !bank.has_memory; });
  const auto bank = static_cast<uint32_t>(unused - banks_.begin());
  if (bank == max_banks_) {
    throw CapacityError(concat("[cache] GDN states: no address for another bank (got ", max_banks_,
                               " in use); wait for another sequence"));
  }
  spares_.reserve(bank + 1);
  if (bank == banks_.size()) banks_.emplace_back();
  banks_[bank].bundles = pool_.take_adjacent(bank_bundles_);
  banks_[bank].has_memory = true;
  spares_.push_back(bank);
}

void GdnBanks::reclaim(uint32_t keep) {
  if (spares_.size() <= keep) return;
  std::sort(spares_.begin(), spares_.end(), std::greater<>());  // the lowest numbers stay
  const auto n_given = static_cast<std::ptrdiff_t>(spares_.size() - keep);
  const std::span<const uint32_t> given = std::span(spares_).first(spares_.size() - keep);
  unmap(given);
  for (const uint32_t bank : given) {
    pool_.drop(banks_[bank].bundles);
    n_ranges_ -= banks_[bank].n_ranges;
    banks_[bank] = {};
  }
  spares_.erase(spares_.begin(), spares_.begin() + n_given);
}

void GdnBanks::confirm() noexcept {
  mapped_.clear();
  unmapped_.clear();
}

void GdnBanks::forget_unconfirmed() {
  for (const uint32_t bank : mapped_) banks_[bank].is_mapped = false;
  mapped_.clear();
  std::erase_if(unmapped_, [&](uint32_t bank) { return banks_[bank].has_memory; });
  const std::vector<uint32_t> again(unmapped_);
  unmapped_.clear();
  unmap(again);
}

uint64_t GdnBanks::held_bytes() const { return (n_owned_ + spares_.size()) * bank_bytes_; }

uint64_t GdnBanks::bank_tiles() const { return bank_bundles_ * pool_.heaps().shape.n_tiles(); }

// Order within a bank: piece, bundle, tile, as in a heap.
void GdnBanks::map(uint32_t bank) {
  if (bank_bundles_ != 0) {
    const BundleShape& shape = pool_.heaps().shape;
    MappingPlan plan(pool_.heaps());
    uint64_t tile = bank * bank_tiles();
    for (uint32_t piece = 0; piece < shape.n_pieces; ++piece) {
      for (const uint32_t bundle : banks_[bank].bundles) {
        plan.add(0, tile, bundle, piece);
        tile += shape.piece_tiles;
      }
    }
    mapped_.push_back(bank);
    uint32_t n_ranges = 0;
    for (const HeapMapping& mapping : plan.mappings()) {
      n_ranges += static_cast<uint32_t>(mapping.runs.size());
      device_.update_mappings(buffer_, &pool_.heap(mapping.heap), mapping.runs);
    }
    n_ranges_ += n_ranges - std::exchange(banks_[bank].n_ranges, n_ranges);
  }
  banks_[bank].is_mapped = true;
}

void GdnBanks::unmap(std::span<const uint32_t> banks) {
  if (bank_bundles_ == 0) return;
  std::vector<MappingRun> runs;
  for (const uint32_t bank : banks) {
    runs.push_back({.buffer_tile = bank * bank_tiles(), .n_tiles = bank_tiles(), .heap_tile = 0});
  }
  unmapped_.insert(unmapped_.end(), banks.begin(), banks.end());
  device_.update_mappings(buffer_, nullptr, runs);
}

void GdnBanks::add_refs(std::span<uint32_t> refs) const {
  for (const Bank& bank : banks_) {
    for (const uint32_t bundle : bank.bundles) ++refs[bundle];
  }
}

void GdnBanks::check_integrity(std::span<const uint32_t> owners) const {
  std::vector<bool> is_spare(banks_.size(), false);
  for (const uint32_t bank : spares_) is_spare.at(bank) = true;
  uint32_t n_owned = 0;
  for (uint32_t bank = 0; bank < banks_.size(); ++bank) {
    const auto& [bundles, refs, n_ranges, has_memory, is_mapped] = banks_[bank];
    n_owned += refs != 0 ? 1 : 0;
    if (owners[bank] != refs || is_spare[bank] != (has_memory && refs == 0) ||
        bundles.size() != (has_memory ? bank_bundles_ : 0) || (refs != 0 && !is_mapped)) {
      throw std::logic_error(concat("[cache] bank ", bank, ": has ", owners[bank],
                                    " owners, but counts ", refs, is_spare[bank] ? ", a spare" : "",
                                    " (", bundles.size(), " bundles of ", bank_bundles_,
                                    is_mapped ? ", mapped" : "", ")"));
    }
  }
  if (n_owned != n_owned_) {
    throw std::logic_error(
        concat("[cache] banks: ", n_owned, " have owners, but ", n_owned_, " are counted"));
  }
}

}  // namespace mtlqwen
