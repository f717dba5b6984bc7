#include "cache/bundle_pool.hpp"

#include <algorithm>
#include <functional>
#include <numeric>
#include <stdexcept>
#include <utility>

#include "base/error.hpp"

namespace mtlqwen {

void BundlePool::set_limit(uint64_t max_bytes, uint64_t wanted_bundles) {
  if (!heaps_.empty()) throw std::logic_error("[cache] limit: set twice");
  const BundleHeaps plan = plan_heaps(heaps_plan_.shape, max_bytes, wanted_bundles);
  if (plan.n_bundles == 0) {
    throw CapacityError(concat("[cache] memory: no room for one block (got ", max_bytes,
                               " bytes, want ", bundle_bytes(), "); raise the memory budget"));
  }
  heaps_.resize(plan.n_heaps());
  heaps_plan_ = plan;
}

std::vector<uint32_t> BundlePool::take(uint32_t n) {
  if (n > n_free()) {
    throw CapacityError(concat("[cache] memory is full (got ", n_free(), " free bundles of ",
                               max_bundles(), ", want ", n,
                               "); wait for another sequence or raise the memory budget"));
  }
  std::vector<uint32_t> taken;
  taken.reserve(n);
  grow(n);
  for (uint32_t i = 0; i < n; ++i) {
    taken.push_back(free_.back());
    free_.pop_back();
    refs_[taken.back()] = 1;
  }
  n_used_ += n;
  changed_ = true;
  return taken;
}

std::vector<uint32_t> BundlePool::take_adjacent(uint32_t n) {
  const std::optional<uint32_t> first = find_adjacent(n);
  if (!first) return take(n);
  std::vector<uint32_t> taken(n);
  std::iota(taken.begin(), taken.end(), *first);
  std::erase_if(free_, [&](uint32_t bundle) { return bundle >= *first && bundle < *first + n; });
  std::fill_n(refs_.begin() + *first, n, 1);
  n_used_ += n;
  changed_ = true;
  return taken;
}

// The lowest n free bundles in a row, all of one heap.
std::optional<uint32_t> BundlePool::find_adjacent(uint32_t n) const {
  uint32_t in_row = 0;
  for (uint32_t bundle = 0; bundle < refs_.size(); ++bundle) {
    const uint32_t heap = heaps_plan_.heap_of(bundle);
    if (bundle % heaps_plan_.heap_bundles == 0) in_row = 0;
    in_row = refs_[bundle] == 0 && heaps_[heap].bytes() != 0 ? in_row + 1 : 0;
    if (in_row == n) return bundle + 1 - n;
  }
  return std::nullopt;
}

void BundlePool::share(std::span<const uint32_t> bundles) noexcept {
  for (const uint32_t bundle : bundles) ++refs_[bundle];
}

void BundlePool::drop(std::span<const uint32_t> bundles) noexcept {
  for (size_t i = bundles.size(); i-- > 0;) {
    if (--refs_[bundles[i]] != 0) continue;
    free_.push_back(bundles[i]);
    --n_used_;
  }
  changed_ = true;
}

// Free bundles are in order afterwards: what is taken next is adjacent again.
void BundlePool::trim() {
  if (!std::exchange(changed_, false)) return;
  std::vector<bool> is_used(heaps_.size(), false);
  for (uint32_t bundle = 0; bundle < refs_.size(); ++bundle) {
    if (refs_[bundle] != 0) is_used[heaps_plan_.heap_of(bundle)] = true;
  }
  if (!is_used.empty()) is_used[0] = true;
  std::erase_if(free_, [&](uint32_t bundle) { return !is_used[heaps_plan_.heap_of(bundle)]; });
  std::sort(free_.begin(), free_.end(), std::greater<>());
  for (size_t heap = 0; heap < heaps_.size(); ++heap) {
    if (!is_used[heap] && heaps_[heap].bytes() != 0) heaps_[heap] = Heap();
  }
}

uint64_t BundlePool::heap_bytes() const {
  uint64_t bytes = 0;
  for (const Heap& heap : heaps_) bytes += heap.bytes();
  return bytes;
}

// Makes the first heaps that do not exist until n_bundles are free.
void BundlePool::grow(uint32_t n_bundles) {
  for (uint32_t index = 0; free_.size() < n_bundles; ++index) {
    if (heaps_[index].bytes() != 0) continue;
    const uint32_t n_new = heaps_plan_.bundles_in(index);
    const uint32_t first = index * heaps_plan_.heap_bundles;
    refs_.resize(std::max<size_t>(refs_.size(), first + n_new), 0);
    free_.reserve(refs_.size());
    heaps_[index] = device_.new_heap(n_new * bundle_bytes(), heaps_plan_.shape.page_bytes,
                                     concat("bundle heap ", index));
    free_.insert(free_.begin(), n_new, 0);  // below the bundles that were used before
    for (uint32_t i = 0; i < n_new; ++i) free_[i] = first + n_new - 1 - i;
  }
}

void BundlePool::check_free_list() const {
  std::vector<bool> seen(refs_.size(), false);
  for (const uint32_t bundle : free_) {
    if (bundle >= refs_.size() || heaps_[heaps_plan_.heap_of(bundle)].bytes() == 0) {
      throw std::logic_error(concat("[cache] bundle ", bundle, ": free, but has no heap"));
    }
    if (seen[bundle] || refs_[bundle] != 0) {
      throw std::logic_error(concat("[cache] bundle ", bundle, ": free, but ",
                                    seen[bundle] ? "listed twice" : "owned", " (refs ",
                                    refs_[bundle], ")"));
    }
    seen[bundle] = true;
  }
}

void BundlePool::check_integrity(std::span<const uint32_t> held) const {
  check_free_list();
  for (uint32_t bundle = 0; bundle < refs_.size(); ++bundle) {
    if (bundle < held.size() && held[bundle] != refs_[bundle]) {
      throw std::logic_error(concat("[cache] bundle ", bundle, ": has ", held[bundle],
                                    " owners, but counts ", refs_[bundle]));
    }
  }
  uint64_t in_heaps = 0;
  for (uint32_t heap = 0; heap < heaps_.size(); ++heap) {
    if (heaps_[heap].bytes() != 0) in_heaps += heaps_plan_.bundles_in(heap);
  }
  if (in_heaps != free_.size() + n_used_ || heap_bytes() != in_heaps * bundle_bytes()) {
    throw std::logic_error(concat("[cache] heaps: ", heap_bytes(), " bytes hold ", in_heaps,
                                  " bundles, but ", n_used_, " are used and ", free_.size(),
                                  " free"));
  }
}

}  // namespace mtlqwen
