// Which tiles of a sparse buffer are mapped, and to what.
#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <vector>

namespace mtlqwen::hostmetal {

struct Memory;

// Consecutive tiles that are mapped to consecutive tiles of one heap, which they own beside its MTL::Heap:
// the pages of a mapped heap stay.
struct MappedRun {
  uint64_t n_tiles = 0;
  std::shared_ptr<Memory> heap;
  uint64_t heap_tile = 0;
};

// Runs never overlap, and neighbours that continue each other are one run.
class MappingRuns {
 public:
  void map(uint64_t first, const MappedRun& run);  // replaces what was there
  void unmap(uint64_t first, uint64_t n_tiles);

  [[nodiscard]] bool is_mapped(uint64_t first, uint64_t n_tiles) const;  // all of them
  [[nodiscard]] size_t n_runs() const { return runs_.size(); }
  // Address ranges that differ from their neighbours, unmapped ones included; what the operating system has to keep.
  [[nodiscard]] uint64_t n_regions(uint64_t total_tiles) const;
  [[nodiscard]] const std::map<uint64_t, MappedRun>& all() const { return runs_; }  // by first tile
  // Each heap with tiles mapped here, once.
  [[nodiscard]] const std::vector<std::pair<std::shared_ptr<Memory>, uint64_t>>& heaps() const {
    return heaps_;
  }

 private:
  using Runs = std::map<uint64_t, MappedRun>;  // by first tile
  void split(uint64_t tile);                   // makes `tile` the first of its run, if it is in one
  void merge_with_next(Runs::iterator run);
  [[nodiscard]] uint64_t has_gap_before(Runs::const_iterator run) const;  // 0 or 1
  void count(const std::shared_ptr<Memory>& heap, int64_t tiles);

  Runs runs_;
  uint64_t gaps_ = 0;  // in front of runs; not the one behind the last
  std::vector<std::pair<std::shared_ptr<Memory>, uint64_t>> heaps_;  // and its tiles here
};

}  // namespace mtlqwen::hostmetal
