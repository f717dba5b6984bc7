#include "hostmetal/mapping_runs.hpp"

#include <algorithm>
#include <iterator>

namespace mtlqwen::hostmetal {

void MappingRuns::map(uint64_t first, const MappedRun& run) {
  unmap(first, run.n_tiles);
  count(run.heap, static_cast<int64_t>(run.n_tiles));
  const auto next = runs_.lower_bound(first);
  gaps_ -= has_gap_before(next);
  const auto added = runs_.emplace_hint(next, first, run);
  gaps_ += has_gap_before(added) + has_gap_before(next);
  merge_with_next(added);
  if (added != runs_.begin()) merge_with_next(std::prev(added));
}

void MappingRuns::unmap(uint64_t first, uint64_t n_tiles) {
  split(first);
  split(first + n_tiles);
  auto run = runs_.lower_bound(first);
  while (run != runs_.end() && run->first < first + n_tiles) {
    count(run->second.heap, -static_cast<int64_t>(run->second.n_tiles));
    gaps_ -= has_gap_before(run) + has_gap_before(std::next(run));
    run = runs_.erase(run);
    gaps_ += has_gap_before(run);
  }
}

bool MappingRuns::is_mapped(uint64_t first, uint64_t n_tiles) const {
  auto run = runs_.upper_bound(first);
  if (run == runs_.begin()) return n_tiles == 0;
  --run;
  const uint64_t end = first + n_tiles;
  while (first < end) {
    if (run == runs_.end() || run->first > first) return false;
    first = std::max(first, run->first + run->second.n_tiles);
    ++run;
    if (first < end && (run == runs_.end() || run->first != first)) return false;
  }
  return true;
}

uint64_t MappingRuns::n_regions(uint64_t total_tiles) const {
  if (runs_.empty()) return 1;
  const auto& [first, last] = *runs_.rbegin();
  return runs_.size() + gaps_ + (first + last.n_tiles != total_tiles ? 1 : 0);
}

uint64_t MappingRuns::has_gap_before(Runs::const_iterator run) const {
  if (run == runs_.end()) return 0;
  if (run == runs_.begin()) return run->first != 0 ? 1 : 0;
  const auto& [first, before] = *std::prev(run);
  return first + before.n_tiles != run->first ? 1 : 0;
}

void MappingRuns::split(uint64_t tile) {
  auto run = runs_.upper_bound(tile);
  if (run == runs_.begin()) return;
  --run;
  const uint64_t before = tile - run->first;
  if (before == 0 || before >= run->second.n_tiles) return;
  MappedRun rest = run->second;
  rest.n_tiles -= before;
  rest.heap_tile += before;
  run->second.n_tiles = before;
  runs_.emplace_hint(std::next(run), tile, std::move(rest));
}

void MappingRuns::merge_with_next(Runs::iterator run) {
  const auto next = std::next(run);
  if (next == runs_.end()) return;
  MappedRun& left = run->second;
  const bool continues = run->first + left.n_tiles == next->first &&
                         left.heap == next->second.heap &&
                         left.heap_tile + left.n_tiles == next->second.heap_tile;
  if (!continues) return;
  left.n_tiles += next->second.n_tiles;
  runs_.erase(next);
}

void MappingRuns::count(const std::shared_ptr<Memory>& heap, int64_t tiles) {
  auto entry = std::find_if(heaps_.begin(), heaps_.end(),
                            [&](const auto& other) { return other.first == heap; });
  if (entry == heaps_.end()) entry = heaps_.insert(heaps_.end(), {heap, 0});
  entry->second += static_cast<uint64_t>(tiles);
  if (entry->second == 0) heaps_.erase(entry);
}

}  // namespace mtlqwen::hostmetal
