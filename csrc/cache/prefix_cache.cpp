#include "cache/prefix_cache.hpp"

#include <algorithm>
#include <limits>
#include <stdexcept>

#include "base/error.hpp"
#include "base/math.hpp"

namespace mtlqwen {
namespace {

using Tokens = std::span<const int32_t>;

constexpr uint32_t kNoLimit = std::numeric_limits<uint32_t>::max();
constexpr uint32_t kEvictedPrefixes = 4096;  // remembered; 112 KiB

}  // namespace

PrefixCache::PrefixCache(BundlePool& pool, GdnBanks& banks, uint32_t block_tokens,
                         uint64_t max_bytes, PrefixHash hash)
    : pool_(pool), banks_(banks), block_tokens_(block_tokens), max_bytes_(max_bytes), hash_(hash),
      tree_(block_tokens, hash), evicted_(kEvictedPrefixes, hash) {}

PrefixCache::~PrefixCache() { clear(); }

Recall PrefixCache::find(Tokens tokens, uint32_t limit) {
  const Found found = look_up(tokens, limit);
  Recall result = recall(found, tokens, limit);
  if (found.checkpoint == nullptr) {
    ++counters_.misses;
  } else {
    ++counters_.hits;
    ++found.checkpoint->uses;
    touch(*found.checkpoint);
  }
  return result;
}

Recall PrefixCache::peek(Tokens tokens, uint32_t limit) const {
  return recall(look_up(tokens, limit), tokens, limit);
}

uint32_t PrefixCache::depth(Tokens tokens, uint32_t limit) const {
  const Checkpoint* checkpoint = look_up(tokens, limit).checkpoint;
  return checkpoint == nullptr ? 0 : checkpoint->n_tokens();
}

bool PrefixCache::contains(Tokens tokens) const {
  return tree_.exact(tree_.walk(tokens), tokens) != nullptr;
}

PrefixCache::Found PrefixCache::look_up(Tokens tokens, uint32_t limit) const {
  BlockNode* last = tree_.walk(tokens);
  return {.last = last, .checkpoint = tree_.deepest(last, tokens, limit)};
}

Recall PrefixCache::recall(const Found& found, Tokens tokens, uint32_t limit) const {
  Recall result;
  if (found.checkpoint != nullptr) {
    result.n_tokens = found.checkpoint->n_tokens();
    result.bank = found.checkpoint->bank;
    result.bundles = bundles_of(*found.checkpoint);
  }
  result.known = tree_.known(found.last, tokens);
  result.evicted = was_evicted(found, tokens.first(std::min<size_t>(tokens.size(), limit)));
  return result;
}

std::vector<uint32_t> PrefixCache::bundles_of(const Checkpoint& checkpoint) const {
  if (held_bundles_.n_distinct() == 0) return {};
  std::vector<uint32_t> bundles(blocks_of(checkpoint.n_tokens()), checkpoint.tail_bundle);
  for (const BlockNode* node = checkpoint.node; node->parent != nullptr; node = node->parent) {
    bundles[node->n_tokens / block_tokens_ - 1] = node->bundle;
  }
  return bundles;
}

// Whether a deeper checkpoint than the one found ended within the tokens.
bool PrefixCache::was_evicted(const Found& found, Tokens tokens) const {
  if (evicted_.empty()) return false;
  uint64_t at = 0;  // a block begins here
  uint64_t hash = kRootHash;
  uint64_t least = 1;
  if (found.checkpoint != nullptr) {
    at = found.checkpoint->node->n_tokens;
    hash = found.checkpoint->node->hash;
    least = found.checkpoint->tail.size() + 1;
  }
  for (; at <= tokens.size(); at += block_tokens_, least = 0) {
    const Tokens rest = tokens.subspan(at);
    const Tokens tail = rest.first(std::min<size_t>(rest.size(), block_tokens_ - 1));
    if (evicted_.any_within(hash, tail, least)) return true;
    if (rest.size() >= block_tokens_) hash = hash_(hash, rest.first(block_tokens_));
  }
  return false;
}

void PrefixCache::publish(Tokens tokens, uint32_t bank, std::span<const uint32_t> bundles) {
  require_checkpoint(tokens, bank, bundles);
  if (memory_bytes(bundles.size(), 1) + tree_.bytes_alone(tokens.size()) > max_bytes_) return;
  BlockNode* last = tree_.walk(tokens);
  if (Checkpoint* there = tree_.exact(last, tokens)) {
    touch(*there);
    return;
  }
  Checkpoint& fresh = add(last, tokens, bank, bundles);
  touch(fresh);
  ++counters_.published;
  while (bytes() > max_bytes_) evict(*choose_victim(&fresh));  // ends: alone it fits
}

void PrefixCache::require_checkpoint(Tokens tokens, uint32_t bank,
                                     std::span<const uint32_t> bundles) const {
  const auto fail = [&](const auto&... what) {
    throw std::logic_error(concat("[cache] checkpoint of ", tokens.size(), " tokens: ", what...));
  };
  if (tokens.empty() || tokens.size() >= kNoLimit) fail("want 1 to ", kNoLimit - 1);
  if (!bundles.empty() && bundles.size() != blocks_of(tokens.size())) {
    fail("got ", bundles.size(), " bundles, want ", blocks_of(tokens.size()));
  }
  if (n_checkpoints() != 0 && bundles.empty() != (held_bundles_.n_distinct() == 0)) {
    fail(bundles.empty() ? "without bundles" : "with bundles", ", unlike the others");
  }
  if (banks_.refs(bank) == 0) fail("bank ", bank, " has no owner");
  for (const uint32_t bundle : bundles) {
    if (pool_.refs(bundle) == 0) fail("bundle ", bundle, " has no owner");
  }
}

// What can fail comes first; from the first share() on nothing does.
Checkpoint& PrefixCache::add(BlockNode* last, Tokens tokens, uint32_t bank,
                             std::span<const uint32_t> bundles) {
  const uint32_t n_there = bundles.empty() ? 0 : last->n_tokens / block_tokens_;
  const std::span<const uint32_t> fresh_bundles = bundles.subspan(n_there);
  held_banks_.make_room(bank);
  for (const uint32_t bundle : fresh_bundles) held_bundles_.make_room(bundle);
  Checkpoint& fresh = tree_.insert(last, tokens);
  fresh.bank = bank;
  banks_.share(bank);
  held_banks_.add(bank);
  pool_.share(fresh_bundles);
  for (const uint32_t bundle : fresh_bundles) held_bundles_.add(bundle);
  if (bundles.empty()) return fresh;
  if (!fresh.tail.empty()) fresh.tail_bundle = bundles.back();
  for (BlockNode* node = fresh.node; node != last; node = node->parent) {
    node->bundle = bundles[node->n_tokens / block_tokens_ - 1];
  }
  return fresh;
}

void PrefixCache::touch(Checkpoint& checkpoint) noexcept {
  checkpoint.clock = clock_;
  checkpoint.last_use = ++use_count_;
}

bool PrefixCache::evict_one() {
  Checkpoint* victim = choose_victim(nullptr);
  if (victim == nullptr) return false;
  evict(*victim);
  return true;
}

// GreedyDual-Size with frequency (Cherkasova, HPL-98-69R1): what its uses save for each byte, above
// the clock at its last use. Saved are the tokens since the nearest shallower checkpoint, for its
// bank and the bundles since then; tokens a MiB keep the sums in the range of exact doubles.
double PrefixCache::priority(const Checkpoint& checkpoint) const {
  const Checkpoint* shallower = tree_.shallower(checkpoint);
  const uint32_t before = shallower != nullptr ? shallower->n_tokens() : 0;
  const uint32_t n_tokens = checkpoint.n_tokens();
  const uint64_t n_bundles =
      held_bundles_.n_distinct() == 0 ? 0 : blocks_of(n_tokens) - before / block_tokens_;
  const auto bytes = static_cast<double>(std::max<uint64_t>(memory_bytes(n_bundles, 1), 1));
  const double saved = static_cast<double>(checkpoint.uses) * (n_tokens - before);
  return checkpoint.clock + saved / (bytes / (1 << 20));
}

Checkpoint* PrefixCache::choose_victim(const Checkpoint* spared) const {
  Checkpoint* victim = nullptr;
  double lowest = 0.0;
  for (const auto& each : tree_.checkpoints()) {
    if (each.get() == spared) continue;
    const double value = priority(*each);
    if (victim == nullptr || value < lowest ||
        (value == lowest && each->last_use < victim->last_use)) {
      victim = each.get();
      lowest = value;
    }
  }
  return victim;
}

void PrefixCache::evict(Checkpoint& victim) {
  clock_ = std::max(clock_, priority(victim));
  evicted_.remember(victim.node->hash, victim.tail);
  forget(victim);
  ++counters_.evictions;
}

void PrefixCache::clear() {
  while (n_checkpoints() != 0) forget(*tree_.checkpoints().back());
  evicted_.clear();
}

void PrefixCache::forget(Checkpoint& checkpoint) {
  banks_.drop(checkpoint.bank);
  held_banks_.remove(checkpoint.bank);
  drop_bundle(checkpoint.tail_bundle);
  BlockNode* node = tree_.remove(checkpoint);
  while (!node->is_needed()) {
    drop_bundle(node->bundle);
    node = tree_.remove(*node);
  }
}

void PrefixCache::drop_bundle(uint32_t bundle) {
  if (bundle == kNoBundle) return;
  pool_.drop({&bundle, 1});
  held_bundles_.remove(bundle);
}

uint64_t PrefixCache::memory_bytes(uint64_t bundles, uint64_t banks) const {
  return (bundles + banks * banks_.bank_bundles()) * pool_.bundle_bytes();
}

uint64_t PrefixCache::blocks_of(uint64_t n_tokens) const {
  return ceil_div(n_tokens, block_tokens_);
}

uint64_t PrefixCache::bytes() const {
  return memory_bytes(held_bundles_.n_distinct(), held_banks_.n_distinct()) + tree_.bytes();
}

uint32_t PrefixCache::reclaimable_bundles() const {
  return held_bundles_.n_alone(pool_) + held_banks_.n_alone(banks_) * banks_.bank_bundles();
}

void PrefixCache::check_integrity() const {
  tree_.check_integrity();
  std::vector<uint32_t> bundles(held_bundles_.counts().size(), 0);
  std::vector<uint32_t> banks(held_banks_.counts().size(), 0);
  const auto count = [](std::vector<uint32_t>& counts, uint32_t id, bool wanted) {
    if ((id < counts.size()) != wanted) {
      throw std::logic_error(concat("[cache] prefix cache: ", id, " where ",
                                    wanted ? "something" : "nothing", " is to be held"));
    }
    if (wanted) ++counts[id];
  };
  const bool has_bundles = held_bundles_.n_distinct() != 0;
  for (const auto& [hash, node] : tree_.nodes()) count(bundles, node->bundle, has_bundles);
  for (const auto& each : tree_.checkpoints()) {
    count(banks, each->bank, true);
    count(bundles, each->tail_bundle, has_bundles && !each->tail.empty());
  }
  held_bundles_.check_integrity("bundle", bundles, pool_);
  held_banks_.check_integrity("bank", banks, banks_);
  if (bytes() > max_bytes_) {
    throw std::logic_error(
        concat("[cache] prefix cache: holds ", bytes(), " bytes, limit ", max_bytes_));
  }
}

}  // namespace mtlqwen
