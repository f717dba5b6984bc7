#include "cache/evicted_prefixes.hpp"

#include <algorithm>

namespace mtlqwen {

EvictedPrefixes::EvictedPrefixes(uint32_t capacity, PrefixHash hash)
    : hash_(hash), entries_(capacity), buckets_(capacity, kNone) {}

void EvictedPrefixes::remember(uint64_t path_hash, std::span<const int32_t> tail) noexcept {
  const uint64_t hash = hash_(path_hash, tail);
  for (uint32_t i = first_of(path_hash); i != kNone; i = entries_[i].next) {
    if (entries_[i].hash == hash && entries_[i].tail_tokens == tail.size()) return;
  }
  uint32_t place = n_;
  if (n_ < entries_.size()) {
    ++n_;
  } else {
    place = oldest_;
    oldest_ = (oldest_ + 1) % n_;
    unlink(place);
  }
  uint32_t& first = bucket_of(path_hash);
  entries_[place] = {.path_hash = path_hash,
                     .hash = hash,
                     .tail_tokens = static_cast<uint32_t>(tail.size()),
                     .next = first};
  first = place;
}

bool EvictedPrefixes::any_within(uint64_t path_hash, std::span<const int32_t> rest,
                                 uint64_t least) const {
  for (uint32_t i = first_of(path_hash); i != kNone; i = entries_[i].next) {
    const Entry& entry = entries_[i];
    if (entry.path_hash != path_hash || entry.tail_tokens < least) continue;
    if (entry.tail_tokens > rest.size()) continue;
    if (hash_(path_hash, rest.first(entry.tail_tokens)) == entry.hash) return true;
  }
  return false;
}

void EvictedPrefixes::clear() noexcept {
  std::fill(buckets_.begin(), buckets_.end(), kNone);
  n_ = 0;
  oldest_ = 0;
}

uint32_t& EvictedPrefixes::bucket_of(uint64_t path_hash) noexcept {
  return buckets_[path_hash % buckets_.size()];
}

uint32_t EvictedPrefixes::first_of(uint64_t path_hash) const {
  return buckets_[path_hash % buckets_.size()];
}

void EvictedPrefixes::unlink(uint32_t entry) noexcept {
  uint32_t* link = &bucket_of(entries_[entry].path_hash);
  while (*link != entry) link = &entries_[*link].next;
  *link = entries_[entry].next;
}

}  // namespace mtlqwen
