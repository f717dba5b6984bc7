// What the prefix cache is to be, in plain words: a list of prefixes, searched from end to end.
#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "cache_rig.hpp"

namespace mtlqwen::testing {

using Ids = std::vector<uint32_t>;
using Prefix = std::vector<int32_t>;

inline bool starts_with(const Prefix& tokens, const Prefix& prefix) {
  return tokens.size() >= prefix.size() && std::equal(prefix.begin(), prefix.end(), tokens.begin());
}

inline Prefix first(const Prefix& tokens, size_t n) {
  return Prefix(tokens.begin(), tokens.begin() + static_cast<ptrdiff_t>(n));
}

struct Kept {
  Prefix tokens;
  uint32_t bank = 0;
  uint32_t tail_bundle = kNoBundle;
  uint32_t uses = 1;
  double clock = 0.0;
  uint64_t last_use = 0;
};

// One thread at a time.
class CacheModel {
 public:
  explicit CacheModel(uint64_t max_bytes) : max_bytes_(max_bytes) {}

  [[nodiscard]] Kept* deepest(const Prefix& tokens, uint32_t limit) {
    Kept* best = nullptr;
    for (Kept& each : kept_) {
      if (each.tokens.size() > limit || !starts_with(tokens, each.tokens)) continue;
      if (best == nullptr || each.tokens.size() > best->tokens.size()) best = &each;
    }
    return best;
  }

  [[nodiscard]] uint32_t known(const Prefix& tokens) const {
    size_t longest = 0;
    for (const Kept& each : kept_) {
      size_t n = 0;
      while (n < tokens.size() && n < each.tokens.size() && tokens[n] == each.tokens[n]) ++n;
      longest = std::max(longest, n);
    }
    return static_cast<uint32_t>(longest);
  }

  [[nodiscard]] bool evicted(const Prefix& tokens, uint32_t found, uint32_t limit) const {
    return std::any_of(evicted_.begin(), evicted_.end(), [&](const Prefix& each) {
      return each.size() > found && each.size() <= limit && starts_with(tokens, each);
    });
  }

  [[nodiscard]] Ids bundles(const Kept& kept) const {
    Ids bundles;
    for (size_t n = kBlock; n <= kept.tokens.size(); n += kBlock) {
      bundles.push_back(blocks_.at(first(kept.tokens, n)));
    }
    if (kept.tail_bundle != kNoBundle) bundles.push_back(kept.tail_bundle);
    return bundles;
  }

  void touch(Kept& kept) {
    kept.clock = clock_;
    kept.last_use = ++use_count_;
  }

  void publish(const Prefix& tokens, uint32_t bank, const Ids& bundles) {
    CacheModel alone(kPlenty);
    alone.add(tokens, bank, bundles);
    if (alone.bytes() > max_bytes_) return;
    Kept* there = deepest(tokens, kAll);
    if (there != nullptr && there->tokens.size() == tokens.size()) return touch(*there);
    add(tokens, bank, bundles);
    ++n_published_;
    while (bytes() > max_bytes_) evict(&kept_.back());
  }

  // Of all but the spared one the lowest benefit per byte; of equals the one idle longest.
  bool evict(const Kept* spared = nullptr) {
    const Kept* victim = nullptr;
    for (const Kept& each : kept_) {
      if (&each != spared && (victim == nullptr || is_worse(each, *victim))) victim = &each;
    }
    if (victim == nullptr) return false;
    clock_ = std::max(clock_, priority(*victim));
    evicted_.insert(victim->tokens);
    kept_.erase(kept_.begin() + (victim - kept_.data()));
    ++n_evicted_;
    std::erase_if(blocks_, [&](const auto& block) {
      return std::none_of(kept_.begin(), kept_.end(),
                          [&](const Kept& each) { return starts_with(each.tokens, block.first); });
    });
    return true;
  }

  void clear() {
    kept_.clear();
    blocks_.clear();
    evicted_.clear();
  }

  // Distinct bundles and banks; what a tree of the same paths takes is asked of a fresh one.
  [[nodiscard]] uint64_t bytes() const {
    std::set<uint32_t> distinct;
    std::set<uint32_t> banks;
    TokenTree tree(kBlock);
    for (const Kept& each : kept_) {
      for (const uint32_t bundle : bundles(each)) distinct.insert(bundle);
      banks.insert(each.bank);
      tree.insert(tree.walk(each.tokens), each.tokens);
    }
    return (distinct.size() + banks.size() * kBankBundles) * kBundleBytes + tree.bytes();
  }

  [[nodiscard]] std::vector<Kept>& kept() { return kept_; }
  [[nodiscard]] uint64_t n_evicted() const { return n_evicted_; }
  [[nodiscard]] uint64_t n_published() const { return n_published_; }

 private:
  void add(const Prefix& tokens, uint32_t bank, const Ids& bundles) {
    for (size_t n = kBlock; n <= tokens.size(); n += kBlock) {
      blocks_.emplace(first(tokens, n), bundles[n / kBlock - 1]);
    }
    kept_.push_back({.tokens = tokens, .bank = bank});
    if (tokens.size() % kBlock != 0) kept_.back().tail_bundle = bundles.back();
    touch(kept_.back());
  }

  [[nodiscard]] bool is_worse(const Kept& a, const Kept& b) const {
    return std::pair(priority(a), a.last_use) < std::pair(priority(b), b.last_use);
  }

  // Tokens for a MiB since the nearest shallower one, as often as it was used.
  [[nodiscard]] double priority(const Kept& kept) const {
    size_t before = 0;
    for (const Kept& each : kept_) {
      const bool is_shallower =
          each.tokens.size() < kept.tokens.size() && starts_with(kept.tokens, each.tokens);
      if (is_shallower) before = std::max(before, each.tokens.size());
    }
    const uint64_t n_bundles = blocks_of(kept.tokens.size()) - before / kBlock + kBankBundles;
    const double saved = kept.uses * static_cast<double>(kept.tokens.size() - before);
    return kept.clock + saved / (static_cast<double>(n_bundles * kBundleBytes) / (1 << 20));
  }

  uint64_t max_bytes_;
  std::vector<Kept> kept_;
  std::map<Prefix, uint32_t> blocks_;  // path of whole blocks: its bundle
  std::set<Prefix> evicted_;
  double clock_ = 0.0;
  uint64_t use_count_ = 0;
  uint64_t n_evicted_ = 0;
  uint64_t n_published_ = 0;
};

}  // namespace mtlqwen::testing
