// The memory of keys, values and states: heaps cut into bundles, which owners share by counting.
#pragma once
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <vector>

#include "cache/bundle_layout.hpp"
#include "gpu/device.hpp"

namespace mtlqwen {

// Invariant: a bundle of a heap that exists is free, or has at least one owner. Whoever maps a
// bundle owns it, and unmaps before he drops it. One thread at a time; the Device outlives it.
class BundlePool {
 public:
  static constexpr uint64_t kNoLimit = std::numeric_limits<uint64_t>::max();

  // Holds nothing before set_limit().
  BundlePool(Device& device, const BundleShape& shape)
      : device_(device), heaps_plan_{.shape = shape} {}

  // As many bundles as are wanted, or as fit max_bytes. Before the first take(). Throws
  // CapacityError where not one fits.
  void set_limit(uint64_t max_bytes, uint64_t wanted_bundles);

  // n free bundles, each with one owner; contents are undefined. Ascending where they are fresh, and
  // those dropped together last come first, in their order. Throws CapacityError and then has changed nothing.
  [[nodiscard]] std::vector<uint32_t> take(uint32_t n);
  // The same, adjacent in one heap where a heap that exists has as many in a row: they are mapped by
  // fewer runs. O(bundles).
  [[nodiscard]] std::vector<uint32_t> take_adjacent(uint32_t n);
  void share(std::span<const uint32_t> bundles) noexcept;  // one more owner each
  void drop(std::span<const uint32_t> bundles) noexcept;   // one less; free without any
  [[nodiscard]] uint32_t refs(uint32_t bundle) const { return refs_.at(bundle); }

  // Gives back all heaps but the first in which nothing is used. Residency must not change while
  // other work waits: call it when the engine goes idle.
  void trim();

  [[nodiscard]] uint32_t max_bundles() const { return heaps_plan_.n_bundles; }
  [[nodiscard]] uint32_t n_used() const { return n_used_; }
  // Those whose heap does not exist yet included.
  [[nodiscard]] uint32_t n_free() const { return max_bundles() - n_used_; }
  [[nodiscard]] uint64_t bundle_bytes() const { return heaps_plan_.shape.bytes(); }
  [[nodiscard]] uint64_t heap_bytes() const;

  [[nodiscard]] const BundleHeaps& heaps() const { return heaps_plan_; }
  [[nodiscard]] const Heap& heap(uint32_t index) const { return heaps_.at(index); }

  // What owners hold, by bundle: each adds its own, for check_integrity().
  [[nodiscard]] std::vector<uint32_t> no_refs() const {
    return std::vector<uint32_t>(refs_.size(), 0);
  }
  // Throws std::logic_error that says which invariant fails, or who counts wrong.
  void check_integrity(std::span<const uint32_t> held) const;

 private:
  [[nodiscard]] std::optional<uint32_t> find_adjacent(uint32_t n) const;
  void grow(uint32_t n_bundles);
  void check_free_list() const;

  Device& device_;
  BundleHeaps heaps_plan_;
  std::vector<Heap> heaps_;     // (n_heaps); empty where not made yet, or given back
  std::vector<uint32_t> refs_;  // up to the last heap made; 0: free, or without a heap
  std::vector<uint32_t> free_;  // a stack; room for all, so that drop() cannot fail
  uint32_t n_used_ = 0;
  bool changed_ = false;  // since the last trim()
};

}  // namespace mtlqwen
