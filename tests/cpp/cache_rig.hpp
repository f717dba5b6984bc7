// A prefix cache over a real pool and real banks on the device, and the sequences that feed it.
#pragma once
#include <algorithm>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cache/bundle_pool.hpp"
#include "cache/gdn_banks.hpp"
#include "cache/prefix_cache.hpp"
#include "check.hpp"
#include "gpu/device.hpp"

namespace mtlqwen::testing {

inline constexpr uint32_t kBlock = 4;  // tokens
inline constexpr uint32_t kAll = std::numeric_limits<uint32_t>::max();
inline constexpr uint64_t kPlenty = 1ULL << 40;
inline constexpr uint64_t kBundleBytes = 64 << 10;
inline constexpr uint32_t kBankBundles = 2;

// One id a letter.
inline std::vector<int32_t> ids(std::string_view text) {
  return std::vector<int32_t>(text.begin(), text.end());
}

inline uint32_t blocks_of(uint64_t n_tokens) {
  return static_cast<uint32_t>((n_tokens + kBlock - 1) / kBlock);
}

struct Rig {
  Device device;
  BundlePool pool;
  GdnBanks banks;
  PrefixCache cache;

  explicit Rig(const std::string& library, uint64_t max_bytes = kPlenty,
               PrefixHash hash = &prefix_hash)
      : device(library),
        pool(device, {.n_pieces = 1, .piece_tiles = 1, .page_bytes = kBundleBytes}),
        banks(device, pool, kBankBundles * kBundleBytes / sizeof(float), 2, kPlenty >> 12),
        cache(pool, banks, kBlock, max_bytes, hash) {
    pool.set_limit(kPlenty, 8192);
  }

  // As a sequence of its own does that computed all of it and is gone.
  void publish(std::string_view text) {
    const std::vector<uint32_t> bundles = pool.take(blocks_of(text.size()));
    const uint32_t bank = banks.take();
    cache.publish(ids(text), bank, bundles);
    banks.drop(bank);
    pool.drop(bundles);
  }

  [[nodiscard]] Recall peek(std::string_view text, uint32_t limit = kAll) const {
    return cache.peek(ids(text), limit);
  }
  [[nodiscard]] uint32_t find(std::string_view text, uint32_t limit = kAll) {
    return cache.find(ids(text), limit).n_tokens;
  }
  [[nodiscard]] bool contains(std::string_view text) const { return cache.contains(ids(text)); }

  // Everything counts right, where nobody but the cache and `sequences` (bundles, each a reference)
  // holds anything.
  void check(std::span<const uint32_t> bundles = {}, std::span<const uint32_t> in_use = {}) const {
    cache.check_integrity();
    std::vector<uint32_t> refs = pool.no_refs();
    banks.add_refs(refs);
    cache.add_refs(refs);
    for (const uint32_t bundle : bundles) ++refs[bundle];
    pool.check_integrity(refs);
    std::vector<uint32_t> owners = banks.no_owners();
    cache.add_owners(owners);
    for (const uint32_t bank : in_use) ++owners[bank];
    banks.check_integrity(owners);
  }
};

}  // namespace mtlqwen::testing
