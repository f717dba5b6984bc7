// The checkpoints that sequences left behind, found again by their tokens.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "cache/bundle_pool.hpp"
#include "cache/evicted_prefixes.hpp"
#include "cache/gdn_banks.hpp"
#include "cache/holdings.hpp"
#include "cache/token_tree.hpp"

namespace mtlqwen {

// What the cache has of a prompt.
struct Recall {
  uint32_t n_tokens = 0;          // of the checkpoint; 0: there is none
  uint32_t bank = kNoBank;        // the state behind them
  std::vector<uint32_t> bundles;  // (blocks that n_tokens touch); none without attention layers
  uint32_t known = 0;    // length of the longest prefix that the path of any checkpoint shares
  bool evicted = false;  // a deeper checkpoint of this prompt was evicted, not long ago
};

struct CacheCounters {
  uint64_t hits = 0;  // finds that had a checkpoint
  uint64_t misses = 0;
  uint64_t published = 0;
  uint64_t evictions = 0;
};

// A checkpoint = a bank and the bundles of its tokens, shared with their pool by references. The
// bundle of a whole block belongs to the block: of sequences that computed the same one, the first
// to publish leaves it, for all checkpoints behind it. Where a checkpoint stands inside a block,
// the bundle of that block is its own. Bundles are never written through the cache.
//
// Recalled ids are held by the cache alone: the caller shares them before anything is published or
// evicted. One thread at a time; pool and banks outlive it.
class PrefixCache {
 public:
  // max_bytes: of bundles, banks and the tree; 0: nothing is kept. hash: another for tests.
  PrefixCache(BundlePool& pool, GdnBanks& banks, uint32_t block_tokens, uint64_t max_bytes,
              PrefixHash hash = &prefix_hash);
  ~PrefixCache();
  PrefixCache(const PrefixCache&) = delete;
  PrefixCache& operator=(const PrefixCache&) = delete;

  // The deepest checkpoint of at most `limit` tokens that is a prefix of the tokens, and counts
  // its use. O(tokens), with one look-up a block, + children of the last node + checkpoints on the
  // path behind the one found.
  Recall find(std::span<const int32_t> tokens, uint32_t limit);
  [[nodiscard]] Recall peek(std::span<const int32_t> tokens, uint32_t limit) const;  // counts none
  // Tokens of the checkpoint alone; 0: there is none.
  [[nodiscard]] uint32_t depth(std::span<const int32_t> tokens, uint32_t limit) const;
  [[nodiscard]] bool contains(std::span<const int32_t> tokens) const;  // exactly these

  // Shares the bank and the bundles of the tokens (one a block, or none at all without attention
  // layers) and evicts down to max_bytes, the new one last. A checkpoint that is there only becomes
  // recent; one that alone would not fit is not taken. O(tokens) + evictions. Throws
  // std::logic_error where that is no checkpoint; any exception leaves all as it was.
  void publish(std::span<const int32_t> tokens, uint32_t bank, std::span<const uint32_t> bundles);

  // Gives up the checkpoint of the lowest benefit per byte; false: there is none. O(checkpoints *
  // depth). Memory comes free only where no sequence and no other checkpoint holds it.
  bool evict_one();
  void clear();  // gives up all, which is no eviction

  [[nodiscard]] uint64_t bytes() const;  // of distinct bundles and banks, and of the tree
  [[nodiscard]] uint64_t max_bytes() const { return max_bytes_; }
  [[nodiscard]] bool is_on() const { return max_bytes_ != 0; }
  [[nodiscard]] uint32_t block_tokens() const { return block_tokens_; }
  [[nodiscard]] const TokenTree& tree() const { return tree_; }
  [[nodiscard]] size_t n_checkpoints() const { return tree_.checkpoints().size(); }
  // Bundles that nobody else holds, those of banks included. O(bundles and banks ever held).
  [[nodiscard]] uint32_t reclaimable_bundles() const;
  [[nodiscard]] const CacheCounters& counters() const { return counters_; }
  // See BundlePool and GdnBanks::check_integrity(): adds the references that are the cache's.
  void add_refs(std::span<uint32_t> bundle_refs) const { held_bundles_.add_to(bundle_refs); }
  void add_owners(std::span<uint32_t> bank_owners) const { held_banks_.add_to(bank_owners); }

  void check_integrity() const;  // throws std::logic_error that says which invariant fails

 private:
  struct Found {
    BlockNode* last = nullptr;         // of the walk
    Checkpoint* checkpoint = nullptr;  // or none
  };
  [[nodiscard]] Found look_up(std::span<const int32_t> tokens, uint32_t limit) const;
  [[nodiscard]] Recall recall(const Found& found, std::span<const int32_t> tokens,
                              uint32_t limit) const;
  [[nodiscard]] std::vector<uint32_t> bundles_of(const Checkpoint& checkpoint) const;
  [[nodiscard]] bool was_evicted(const Found& found, std::span<const int32_t> tokens) const;

  void require_checkpoint(std::span<const int32_t> tokens, uint32_t bank,
                          std::span<const uint32_t> bundles) const;
  Checkpoint& add(BlockNode* last, std::span<const int32_t> tokens, uint32_t bank,
                  std::span<const uint32_t> bundles);
  void touch(Checkpoint& checkpoint) noexcept;
  [[nodiscard]] double priority(const Checkpoint& checkpoint) const;
  [[nodiscard]] Checkpoint* choose_victim(const Checkpoint* spared) const;
  void evict(Checkpoint& victim);
  void forget(Checkpoint& checkpoint);
  void drop_bundle(uint32_t bundle);
  [[nodiscard]] uint64_t memory_bytes(uint64_t bundles, uint64_t banks) const;
  [[nodiscard]] uint64_t blocks_of(uint64_t n_tokens) const;

  BundlePool& pool_;
  GdnBanks& banks_;
  uint32_t block_tokens_;
  uint64_t max_bytes_;
  PrefixHash hash_;
  TokenTree tree_;
  EvictedPrefixes evicted_;
  Holdings held_bundles_;
  Holdings held_banks_;
  CacheCounters counters_;
  double clock_ = 0.0;  // the highest priority that was evicted: what is not used ages
  uint64_t use_count_ = 0;
};

}  // namespace mtlqwen
