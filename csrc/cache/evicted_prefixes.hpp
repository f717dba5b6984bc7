// Which prefixes had a checkpoint that was evicted: why a prompt is computed again.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "cache/prefix_hash.hpp"

namespace mtlqwen {

// The hashes of the last `capacity` prefixes, no tokens: an answer is for statistics only, wrong
// where hashes collide. All memory is taken at the start. One thread at a time.
class EvictedPrefixes {
 public:
  explicit EvictedPrefixes(uint32_t capacity, PrefixHash hash);

  // The prefix of a path of whole blocks (its hash) and of a tail behind it. In place of the oldest.
  void remember(uint64_t path_hash, std::span<const int32_t> tail) noexcept;

  // Whether one was the same path followed by at least `least` of the tokens in `rest`. Costs the
  // hashing of those known of that path.
  [[nodiscard]] bool any_within(uint64_t path_hash, std::span<const int32_t> rest,
                                uint64_t least) const;

  [[nodiscard]] bool empty() const { return n_ == 0; }
  void clear() noexcept;

 private:
  static constexpr uint32_t kNone = UINT32_MAX;
  struct Entry {
    uint64_t path_hash = 0;
    uint64_t hash = 0;  // of the whole prefix
    uint32_t tail_tokens = 0;
    uint32_t next = kNone;  // in the same bucket
  };

  [[nodiscard]] uint32_t& bucket_of(uint64_t path_hash) noexcept;
  [[nodiscard]] uint32_t first_of(uint64_t path_hash) const;
  void unlink(uint32_t entry) noexcept;

  PrefixHash hash_;
  std::vector<Entry> entries_;     // a ring
  std::vector<uint32_t> buckets_;  // by path hash: the first entry
  uint32_t n_ = 0;
  uint32_t oldest_ = 0;  // the next to be overwritten, once the ring is full
};

}  // namespace mtlqwen
