#include "cache/bindings.hpp"

#include <stdexcept>

#include "base/error.hpp"

namespace mtlqwen {

void Bindings::grow(uint32_t n) {
  free_.reserve(n_total_ + n);
  free_.insert(free_.begin(), n, 0);  // below the bundles that were used before
  for (uint32_t i = 0; i < n; ++i) free_[i] = n_total_ + n - 1 - i;
  n_total_ += n;
}

std::span<const uint32_t> Bindings::bind(uint32_t slot, uint32_t n) {
  std::vector<uint32_t>& blocks = bound_.at(slot);
  if (n > n_free()) {
    throw std::logic_error(concat("[cache] bindings: ", n, " bundles asked, ", n_free(), " free"));
  }
  blocks.reserve(blocks.size() + n);
  for (uint32_t i = 0; i < n; ++i) {
    blocks.push_back(free_.back());
    free_.pop_back();
  }
  return std::span<const uint32_t>(blocks).last(n);
}

void Bindings::unbind(uint32_t slot, uint32_t keep) {
  std::vector<uint32_t>& blocks = bound_.at(slot);
  while (blocks.size() > keep) {
    free_.push_back(blocks.back());
    blocks.pop_back();
  }
}

void Bindings::check_integrity() const {
  std::vector<bool> seen(n_total_, false);
  uint32_t n_seen = 0;
  const auto visit = [&](uint32_t bundle, const char* where) {
    if (bundle >= n_total_) {
      throw std::logic_error(
          concat("[cache] bundle ", bundle, ": ", where, ", but only ", n_total_, " exist"));
    }
    if (seen[bundle]) {
      throw std::logic_error(concat("[cache] bundle ", bundle, ": ", where, " and elsewhere, too"));
    }
    seen[bundle] = true;
    ++n_seen;
  };
  for (const uint32_t bundle : free_) visit(bundle, "free");
  for (const std::vector<uint32_t>& blocks : bound_) {
    for (const uint32_t bundle : blocks) visit(bundle, "bound");
  }
  if (n_seen != n_total_) {
    throw std::logic_error(
        concat("[cache] bundles: ", n_seen, " are free or bound, ", n_total_, " exist"));
  }
}

}  // namespace mtlqwen
