// cache/: the hash of prefixes, the tree of blocks, and the memory of what was evicted.
#include <array>
#include <bit>
#include <cstdint>
#include <random>
#include <span>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "cache/evicted_prefixes.hpp"
#include "cache/prefix_hash.hpp"
#include "cache/token_tree.hpp"
#include "check.hpp"

namespace mtlqwen::testing {
namespace {

constexpr uint32_t kBlock = 4;  // tokens
constexpr uint32_t kAll = UINT32_MAX;

std::vector<int32_t> ids(std::string_view text) {
  return std::vector<int32_t>(text.begin(), text.end());
}

uint64_t same_hash(uint64_t, std::span<const int32_t>) { return 7; }

Checkpoint& insert(TokenTree& tree, std::string_view text) {
  const std::vector<int32_t> tokens = ids(text);
  return tree.insert(tree.walk(tokens), tokens);
}

uint32_t deepest(const TokenTree& tree, std::string_view text, uint32_t limit = kAll) {
  const std::vector<int32_t> tokens = ids(text);
  const Checkpoint* found = tree.deepest(tree.walk(tokens), tokens, limit);
  return found != nullptr ? found->n_tokens() : 0;
}

void remove(TokenTree& tree, std::string_view text) {
  const std::vector<int32_t> tokens = ids(text);
  BlockNode* node = tree.remove(*tree.exact(tree.walk(tokens), tokens));
  while (!node->is_needed()) node = tree.remove(*node);
}

// Any bit of any id moves half of the hash: no more than 26 of 64 bits fewer or more, in any sample.
void test_every_bit_counts() {
  std::mt19937 random(1);
  std::array<uint32_t, 64> flips{};  // of each bit of the hash
  uint32_t n_samples = 0;
  for (int i = 0; i < 40; ++i) {
    std::vector<int32_t> tokens(5);
    for (int32_t& id : tokens) id = static_cast<int32_t>(random() % 250'000);
    const uint64_t hash = prefix_hash(kRootHash, tokens);
    for (size_t bit = 0; bit < 32 * tokens.size(); ++bit) {
      std::vector<int32_t> other = tokens;
      other[bit / 32] ^= static_cast<int32_t>(1U << bit % 32);
      const uint64_t changed = hash ^ prefix_hash(kRootHash, other);
      check(std::popcount(changed) >= 6 && std::popcount(changed) <= 58);
      for (size_t j = 0; j < 64; ++j) flips[j] += static_cast<uint32_t>(changed >> j & 1);
      ++n_samples;
    }
  }
  for (const uint32_t n : flips) check(n > n_samples * 45 / 100 && n < n_samples * 55 / 100);
}

void test_order_length_and_parent_count() {
  std::unordered_set<uint64_t> seen{kRootHash};
  const auto fresh = [&](uint64_t parent, const std::vector<int32_t>& tokens) {
    check(seen.insert(prefix_hash(parent, tokens)).second);
    return prefix_hash(parent, tokens);
  };
  fresh(kRootHash, {});
  for (size_t n = 1; n <= 300; ++n) fresh(kRootHash, std::vector<int32_t>(n, 0));
  for (int32_t first = 0; first < 200; ++first) {
    for (int32_t second = 1; second < 200; ++second) fresh(kRootHash, {first, second});
  }
  const uint64_t parent = fresh(kRootHash, {3, 1, 4, 1});
  fresh(parent, {0});
  fresh(parent, {3, 1, 4, 1});
  fresh(prefix_hash(kRootHash, std::vector<int32_t>{3, 1}), {4, 1});  // cut elsewhere: another path
}

void test_nodes_live_while_needed() {
  TokenTree tree(kBlock);
  check_equal(tree.bytes(), 0U);
  insert(tree, "abcdefghijkl");
  check_equal(tree.bytes(), tree.bytes_alone(12));
  insert(tree, "abcdef");
  insert(tree, "abcdefgh1234");
  check_equal(tree.nodes().size(), 4U);
  tree.check_integrity();
  remove(tree, "abcdefghijkl");
  check_equal(tree.nodes().size(), 3U);
  check_equal(deepest(tree, "abcdefghijkl"), 6U);
  remove(tree, "abcdefgh1234");
  check_equal(tree.nodes().size(), 1U);  // "abcd", on which the tail "ef" stands
  tree.check_integrity();
  remove(tree, "abcdef");
  check_equal(tree.nodes().size(), 0U);
  check_equal(tree.bytes(), 0U);
  tree.check_integrity();
}

void test_shallower() {
  TokenTree tree(kBlock);
  const Checkpoint& deep = insert(tree, "abcdefghijkl");
  check(tree.shallower(deep) == nullptr);
  const Checkpoint& first = insert(tree, "ab");
  insert(tree, "abX");
  check(tree.shallower(deep) == &first);
  const Checkpoint& tail = insert(tree, "abcdefg");
  insert(tree, "abcdefX");
  check(tree.shallower(deep) == &tail);
  const Checkpoint& shorter = insert(tree, "abcde");
  check(tree.shallower(tail) == &shorter);
  check(tree.shallower(shorter) == &first);
  const Checkpoint& whole = insert(tree, "abcd");
  check(tree.shallower(shorter) == &whole);
  check(tree.shallower(first) == nullptr);
}

// All paths under one hash, of the same depth and of others: tokens and parents tell them apart.
void test_tokens_are_compared() {
  TokenTree tree(kBlock, &same_hash);
  insert(tree, "abcdefgh");
  check_equal(deepest(tree, "abcdefgh"), 8U);
  check_equal(deepest(tree, "abcdefgX"), 0U);
  check_equal(deepest(tree, "efghabcd"), 0U);
  insert(tree, "efgh");
  check_equal(tree.nodes().size(), 3U);  // "efgh" behind "abcd" is another node
  check_equal(deepest(tree, "efghefgh"), 4U);
  insert(tree, "efghefgh");
  check_equal(deepest(tree, "efghefgh"), 8U);
  check_equal(deepest(tree, "abcdabcd"), 0U);
  const std::vector<int32_t> other = ids("abcdefXX");
  check_equal(tree.known(tree.walk(other), other), 6U);
  tree.check_integrity();
  remove(tree, "efgh");
  check_equal(deepest(tree, "efghefgh"), 8U);
  remove(tree, "efghefgh");
  check_equal(deepest(tree, "efghefgh"), 0U);
  check_equal(deepest(tree, "abcdefgh"), 8U);
  tree.check_integrity();
}

void test_integrity_sees_damage() {
  const auto damaged = [](void (*damage)(Checkpoint&), const char* part) {
    TokenTree tree(kBlock);
    insert(tree, "abcdefg");
    insert(tree, "abcd1234");
    insert(tree, "abcdeX");
    tree.check_integrity();
    const std::vector<int32_t> tokens = ids("abcdefg");
    Checkpoint& victim = *tree.exact(tree.walk(tokens), tokens);
    damage(victim);
    check_throws<std::logic_error>([&] { tree.check_integrity(); }, part);
  };
  damaged([](Checkpoint& victim) { victim.tail[1] = 'X', victim.tail.pop_back(); }, "twice");
  damaged([](Checkpoint& victim) { victim.tail.push_back('h'); }, "a tail of a whole block");
  damaged([](Checkpoint& victim) { victim.tail.pop_back(); }, "tails miscounted");
  damaged([](Checkpoint& victim) { ++victim.index; }, "wrong index");
  damaged([](Checkpoint& victim) { victim.node->first_checkpoint = &victim; },
          "checkpoints are linked");
  damaged([](Checkpoint& victim) { victim.node->tokens[0] = 'X'; }, "wrong hash");
  damaged([](Checkpoint& victim) { victim.node->n_tokens = 8; }, "wrong depth");
  damaged([](Checkpoint& victim) { victim.node->first_child->previous = victim.node; },
          "linked wrongly");
  damaged([](Checkpoint& victim) { victim.node->first_child->tokens.pop_back(); }, "whole block");
}

void test_evicted_prefixes_are_remembered() {
  EvictedPrefixes evicted(8, &prefix_hash);
  check(evicted.empty());
  const auto any = [&](std::string_view rest, uint64_t least, uint64_t path = kRootHash) {
    return evicted.any_within(path, ids(rest), least);
  };
  evicted.remember(kRootHash, ids("ab"));
  evicted.remember(kRootHash + 8, ids("xyz"));  // in the same bucket
  evicted.remember(kRootHash + 8, {});
  check(!evicted.empty());
  check(any("ab", 0) && any("abc", 2));
  check(!any("abc", 3) && !any("a", 0) && !any("aXc", 0) && !any("xyz", 0));
  check(any("xyz", 3, kRootHash + 8) && any("", 0, kRootHash + 8));
  check(!any("xy", 1, kRootHash + 8));
  evicted.clear();
  check(evicted.empty() && !any("ab", 0));
}

// The ring forgets the oldest; what comes twice takes one place.
void test_evicted_prefixes_are_bounded() {
  EvictedPrefixes evicted(8, &prefix_hash);
  const auto path = [](int i) { return static_cast<uint64_t>(i) * 3; };  // several in a bucket
  for (int i = 0; i < 100; ++i) {
    evicted.remember(path(i), ids("ab"));
    for (int j = 0; j <= i; ++j) check_equal(evicted.any_within(path(j), ids("ab"), 1), j > i - 8);
    evicted.remember(path(i), ids("ab"));
  }
}

}  // namespace
}  // namespace mtlqwen::testing

int main(int n_arguments, char** arguments) {
  using namespace mtlqwen::testing;
  return run({{"every bit counts", test_every_bit_counts},
              {"order, length and parent count", test_order_length_and_parent_count},
              {"nodes live while needed", test_nodes_live_while_needed},
              {"shallower", test_shallower},
              {"tokens are compared", test_tokens_are_compared},
              {"integrity sees damage", test_integrity_sees_damage},
              {"evicted prefixes are remembered", test_evicted_prefixes_are_remembered},
              {"evicted prefixes are bounded", test_evicted_prefixes_are_bounded}},
             n_arguments > 2 ? arguments[2] : "");
}
