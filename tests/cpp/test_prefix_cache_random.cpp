// cache/: random use of the prefix cache, against its model; everything is counted after each step.
#include <cstdint>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "cache_model.hpp"
#include "cache_rig.hpp"

namespace mtlqwen::testing {
namespace {

std::string library_path;  // the program's first argument

// Few values: paths of unlike tokens and depths meet under one hash all the time.
uint64_t four_hashes(uint64_t parent, std::span<const int32_t> tokens) {
  return prefix_hash(parent, tokens) & 3;
}

// Sequences that publish where they stand, next to others that look up and evict.
class Schedule {
 public:
  Schedule(uint32_t seed, uint64_t max_bytes, PrefixHash hash)
      : rig_(library_path, max_bytes, hash), model_(max_bytes), random_(seed),
        is_exact_(hash == &prefix_hash) {}

  void step() {
    const uint32_t kind = below(100);
    if (kind < 45) run_sequence();
    if (kind >= 45 && kind < 80) look_up();
    if (kind >= 80 && kind < 95) check_equal(rig_.cache.evict_one(), model_.evict());
    if (kind >= 95 && kind < 99 && !live_.empty()) finish(below(live_.size()));
    if (kind == 99 && below(8) == 0) {
      rig_.cache.clear();
      model_.clear();
    }
    compare();
  }

  // All memory comes back once the sequences and the cache are gone.
  void end() {
    while (!live_.empty()) finish(0);
    while (rig_.cache.evict_one()) compare_counts();
    rig_.banks.reclaim();
    check_equal(rig_.pool.n_used(), 0U);
    check_equal(rig_.cache.bytes(), 0U);
  }

  [[nodiscard]] const CacheCounters& counters() const { return rig_.cache.counters(); }

 private:
  struct Sequence {
    Ids bundles;
    uint32_t bank = 0;
  };

  uint32_t below(size_t n) { return static_cast<uint32_t>(random_() % n); }

  // Most continue or leave something that was seen before; ids are few, so that others meet, too.
  Prefix prompt() {
    Prefix tokens;
    if (!seen_.empty() && below(8) != 0) {
      tokens = seen_[below(seen_.size())];
      if (below(2) == 0) tokens.resize(below(tokens.size() + 1));
    }
    const size_t n = std::min<size_t>(tokens.size() + below(10), 40);
    while (tokens.size() < n) tokens.push_back(static_cast<int32_t>(below(3)));
    if (tokens.empty()) tokens.push_back(0);
    if (seen_.size() < 40) {
      seen_.push_back(tokens);
    } else {
      seen_[below(40)] = tokens;
    }
    return tokens;
  }

  // Computes the prompt on top of what is recalled, or all anew; publishes at up to three places,
  // some of them in one block; lives on or not.
  void run_sequence() {
    const Prefix tokens = prompt();
    Sequence sequence;
    if (below(4) != 0) {
      const Recall recall = rig_.cache.peek(tokens, static_cast<uint32_t>(tokens.size()));
      const std::span<const uint32_t> whole =
          std::span(recall.bundles).first(recall.n_tokens / kBlock);
      rig_.pool.share(whole);
      sequence.bundles.assign(whole.begin(), whole.end());
    }
    const uint32_t n_bound = static_cast<uint32_t>(sequence.bundles.size());
    for (const uint32_t bundle : rig_.pool.take(blocks_of(tokens.size()) - n_bound)) {
      sequence.bundles.push_back(bundle);
    }
    std::optional<uint32_t> bank;
    for (size_t n = 1 + below(tokens.size()); n <= tokens.size(); n += 1 + below(6)) {
      if (bank) rig_.banks.drop(*bank);
      bank = rig_.banks.take();
      const auto bundles = std::span(sequence.bundles).first(blocks_of(n));
      rig_.cache.publish(first(tokens, n), *bank, bundles);
      model_.publish(first(tokens, n), *bank, Ids(bundles.begin(), bundles.end()));
    }
    sequence.bank = *bank;
    live_.push_back(std::move(sequence));
    if (live_.size() > 3 || below(2) == 0) finish(below(live_.size()));
  }

  void finish(uint32_t index) {
    rig_.pool.drop(live_[index].bundles);
    rig_.banks.drop(live_[index].bank);
    live_.erase(live_.begin() + index);
  }

  void look_up() {
    const Prefix tokens = prompt();
    const uint32_t limit = below(3) == 0 ? below(tokens.size() + 2) : kAll;
    Kept* want = model_.deepest(tokens, limit);
    const bool counts = below(2) == 0;
    const Recall got = counts ? rig_.cache.find(tokens, limit) : rig_.cache.peek(tokens, limit);
    check_equal(got.n_tokens, want != nullptr ? want->tokens.size() : 0);
    check_equal(got.bank, want != nullptr ? want->bank : kNoBank);
    check(got.bundles == (want != nullptr ? model_.bundles(*want) : Ids{}));
    check_equal(got.known, model_.known(tokens));
    const bool evicted = model_.evicted(tokens, got.n_tokens, limit);
    check(is_exact_ ? got.evicted == evicted : got.evicted >= evicted);
    check_equal(rig_.cache.contains(tokens), model_.deepest(tokens, kAll) != nullptr &&
                                                 model_.deepest(tokens, kAll)->tokens == tokens);
    if (!counts) return;
    ++(want != nullptr ? n_hits_ : n_misses_);
    if (want == nullptr) return;
    ++want->uses;
    model_.touch(*want);
  }

  void compare() {
    check_equal(rig_.cache.n_checkpoints(), model_.kept().size());
    check_equal(rig_.cache.bytes(), model_.bytes());
    for (const Kept& each : model_.kept()) {
      const Recall got = rig_.cache.peek(each.tokens, static_cast<uint32_t>(each.tokens.size()));
      check_equal(got.n_tokens, each.tokens.size());
      check_equal(got.bank, each.bank);
      check(got.bundles == model_.bundles(each));
    }
    check_equal(counters().published, model_.n_published());
    check_equal(counters().evictions, model_.n_evicted());
    check_equal(counters().hits, n_hits_);
    check_equal(counters().misses, n_misses_);
    compare_counts();
  }

  void compare_counts() const {
    Ids bundles;
    Ids banks;
    for (const Sequence& each : live_) {
      bundles.insert(bundles.end(), each.bundles.begin(), each.bundles.end());
      banks.push_back(each.bank);
    }
    rig_.check(bundles, banks);
  }

  Rig rig_;
  CacheModel model_;
  std::mt19937 random_;
  bool is_exact_;  // the hash tells prefixes apart
  std::vector<Prefix> seen_;
  std::vector<Sequence> live_;
  uint64_t n_hits_ = 0;
  uint64_t n_misses_ = 0;
};

// Fewer evictions than are remembered, so that the model need not forget.
void run_schedules(uint64_t max_bytes, PrefixHash hash) {
  CacheCounters total;
  for (const uint32_t seed : {1U, 2U, 3U}) {
    Schedule schedule(seed, max_bytes, hash);
    for (int i = 0; i < 600; ++i) schedule.step();
    schedule.end();
    total.hits += schedule.counters().hits;
    total.evictions += schedule.counters().evictions;
  }
  check(total.hits > 100 && total.evictions > 200);
}

void test_without_a_limit() { run_schedules(kPlenty, &prefix_hash); }
void test_under_pressure() { run_schedules(40 * kBundleBytes, &prefix_hash); }
void test_colliding() { run_schedules(kPlenty, &four_hashes); }
void test_colliding_under_pressure() { run_schedules(70 * kBundleBytes, &four_hashes); }

}  // namespace
}  // namespace mtlqwen::testing

int main(int n_arguments, char** arguments) {
  using namespace mtlqwen::testing;
  if (n_arguments < 2) return 2;
  library_path = arguments[1];
  return run({{"without a limit", test_without_a_limit},
              {"under pressure", test_under_pressure},
              {"colliding", test_colliding},
              {"colliding under pressure", test_colliding_under_pressure}},
             n_arguments > 2 ? arguments[2] : "");
}
