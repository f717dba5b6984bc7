// Where bundles stand in their heaps, and the runs that map them: pure arithmetic, no device.
#pragma once
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "gpu/device.hpp"

namespace mtlqwen {

// A bundle is n_pieces pieces, each what one plane needs for one block; without planes it is one tile.
struct BundleShape {
  uint32_t n_pieces = 1;
  uint64_t piece_tiles = 1;
  uint64_t page_bytes = 64 << 10;  // of a tile

  [[nodiscard]] uint64_t n_tiles() const { return n_pieces * piece_tiles; }
  [[nodiscard]] uint64_t bytes() const { return n_tiles() * page_bytes; }
};

// How bundles are dealt to heaps: bundle b is number b % heap_bundles of heap b / heap_bundles; the
// last heap may hold fewer. Order within a heap: piece, bundle, tile, so that adjacent bundles
// mapped to adjacent addresses make one run a piece, however long.
struct BundleHeaps {
  BundleShape shape;
  uint32_t n_bundles = 0;
  uint32_t heap_bundles = 1;

  [[nodiscard]] uint32_t n_heaps() const;
  [[nodiscard]] uint32_t heap_of(uint32_t bundle) const { return bundle / heap_bundles; }
  [[nodiscard]] uint32_t bundles_in(uint32_t heap) const;
  [[nodiscard]] uint64_t heap_tile(uint32_t bundle, uint32_t piece) const;
};

// As many bundles as are wanted, or as fit max_bytes; in heaps of up to 64 MiB.
[[nodiscard]] BundleHeaps plan_heaps(const BundleShape& shape, uint64_t max_bytes, uint64_t wanted);

// Runs to be mapped from one heap into one sparse buffer by one call.
struct HeapMapping {
  uint32_t buffer = 0;
  uint32_t heap = 0;
  std::vector<MappingRun> runs;
};

// Gathers the pieces of bundles that are to be mapped, by buffer and heap.
class MappingPlan {
 public:
  explicit MappingPlan(const BundleHeaps& heaps) : heaps_(heaps) {}

  // The piece stands from the buffer's tile `buffer_tile` on; part of the last run where it
  // continues that in the buffer and in the heap.
  void add(uint32_t buffer, uint64_t buffer_tile, uint32_t bundle, uint32_t piece);
  [[nodiscard]] std::vector<HeapMapping> mappings() const;

 private:
  const BundleHeaps& heaps_;
  std::map<std::pair<uint32_t, uint32_t>, std::vector<MappingRun>> runs_;  // by (buffer, heap)
};

}  // namespace mtlqwen
