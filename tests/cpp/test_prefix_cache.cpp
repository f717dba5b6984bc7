// cache/: what the prefix cache finds, holds and gives up.
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <new>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "cache_rig.hpp"

namespace mtlqwen::testing {
namespace {

std::string library_path;             // the program's first argument
thread_local int64_t news_left = -1;  // of this thread, until one fails; negative: none does

}  // namespace
}  // namespace mtlqwen::testing

// Not inlined: g++ 12 takes malloc and free in them for mismatched otherwise.
[[gnu::noinline]] void* operator new(std::size_t size) {
  using mtlqwen::testing::news_left;
  if (news_left >= 0 && news_left-- == 0) throw std::bad_alloc();
  if (void* memory = std::malloc(size == 0 ? 1 : size)) return memory;
  throw std::bad_alloc();
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }

namespace mtlqwen::testing {
namespace {

using Ids = std::vector<uint32_t>;

void test_finds_the_deepest_within_the_limit() {
  Rig rig(library_path);
  check_equal(rig.peek("abcdefgh").n_tokens, 0U);
  rig.publish("ab");
  rig.publish("abcdef");
  rig.publish("abcdefghijkl");
  const auto found = [&](const char* text, uint32_t limit) {
    return rig.peek(text, limit).n_tokens;
  };
  check_equal(found("abcdefghijklmn", kAll), 12U);
  check_equal(found("abcdefghijkl", kAll), 12U);
  check_equal(found("abcdefghijkl", 11), 6U);
  check_equal(found("abcdefghijkX", kAll), 6U);
  check_equal(found("abcdefghijkl", 6), 6U);
  check_equal(found("abcdefghijkl", 5), 2U);
  check_equal(found("abcdXfgh", kAll), 2U);
  check_equal(found("abXd", kAll), 2U);
  check_equal(found("abcdef", 1), 0U);
  check_equal(found("a", kAll), 0U);
  check_equal(found("", kAll), 0U);
  check(rig.contains("abcdef") && !rig.contains("abcdefg") && !rig.contains("abcd"));
  check(!rig.contains(""));
  rig.check();
}

void test_known_reaches_into_blocks_and_tails() {
  Rig rig(library_path);
  const auto known = [&](const char* text, uint32_t limit = kAll) {
    return rig.peek(text, limit).known;
  };
  check_equal(known("abc"), 0U);
  rig.publish("abcdefghij");  // two blocks and a tail
  rig.publish("abcdEFGHIJKL");
  check_equal(known("Xbc"), 0U);
  check_equal(known("abX"), 2U);
  check_equal(known("abc"), 3U);
  check_equal(known("abcdX"), 4U);
  check_equal(known("abcdefX"), 6U);
  check_equal(known("abcdEFGX"), 7U);
  check_equal(known("abcdefghiX"), 9U);
  check_equal(known("abcdefghijkl"), 10U);
  check_equal(known("abcdEFGHIJKLM"), 12U);
  check_equal(known("abcdefghij", 3), 10U);  // whatever may be used of it
  check_equal(rig.peek("abcdefghiX").n_tokens, 0U);
}

void test_recall_names_bank_and_bundles() {
  Rig rig(library_path);
  const Ids bundles = rig.pool.take(3);
  const Ids banks{rig.banks.take(), rig.banks.take()};
  rig.cache.publish(ids("abcdefghi"), banks[0], bundles);
  rig.cache.publish(ids("abcdefgh"), banks[1], std::vector(bundles.begin(), bundles.end() - 1));
  const Recall deep = rig.peek("abcdefghijkl");
  check(deep.n_tokens == 9 && deep.bank == banks[0] && deep.bundles == bundles);
  const Recall whole = rig.peek("abcdefghi", 8);
  check(whole.n_tokens == 8 && whole.bank == banks[1]);
  check(whole.bundles == Ids(bundles.begin(), bundles.end() - 1));
  const Recall none = rig.peek("abcdefghi", 7);
  check(none.n_tokens == 0 && none.bank == kNoBank && none.bundles.empty());
  rig.check(bundles, banks);
}

// One pass leaves states at several rows, all over the same bundles.
void test_checkpoints_of_one_block_share_its_bundle() {
  Rig rig(library_path);
  const Ids bundles = rig.pool.take(2);
  const Ids banks{rig.banks.take(), rig.banks.take(), rig.banks.take()};
  rig.cache.publish(ids("abcde"), banks[0], bundles);
  rig.cache.publish(ids("abcdefg"), banks[1], bundles);
  rig.cache.publish(ids("abcdefgh"), banks[2], bundles);
  check_equal(rig.cache.n_checkpoints(), 3U);
  for (const uint32_t n : {5U, 7U, 8U}) {
    const Recall recall = rig.peek("abcdefgh", n);
    check_equal(recall.n_tokens, n);
    check(recall.bundles == bundles && recall.bank == banks[n == 5 ? 0 : n - 6]);
  }
  check_equal(rig.pool.refs(bundles[1]), 4U);  // two tails, one block, and we
  rig.check(bundles, banks);
  const uint64_t tree = rig.cache.bytes() - (2 + 3 * kBankBundles) * kBundleBytes;
  check(tree > 0 && tree < 4096);  // each bundle was counted once
}

void test_the_same_tokens_twice() {
  Rig rig(library_path);
  rig.publish("abcdef");
  const Recall before = rig.peek("abcdef");
  const uint64_t bytes = rig.cache.bytes();
  rig.publish("abcdef");
  const Recall after = rig.peek("abcdef");
  check(before.bank == after.bank && before.bundles == after.bundles);
  check_equal(rig.cache.bytes(), bytes);
  check_equal(rig.cache.n_checkpoints(), 1U);
  check_equal(rig.cache.counters().published, 1U);
  rig.check();
}

// A path of blocks is held once, however many sequences computed it.
void test_the_first_leaves_the_bundles_of_a_block() {
  Rig rig(library_path);
  rig.publish("abcdefgh");
  const Recall first = rig.peek("abcdefgh");
  const Ids own = rig.pool.take(3);
  const uint32_t bank = rig.banks.take();
  rig.cache.publish(ids("abcdefghi"), bank, own);
  check(rig.peek("abcdefghi").bundles == Ids{first.bundles[0], first.bundles[1], own[2]});
  check_equal(rig.pool.refs(own[0]), 1U);
  check_equal(rig.pool.refs(own[2]), 2U);
  rig.check(own, Ids{bank});
}

void test_what_is_no_checkpoint_is_refused() {
  Rig rig(library_path);
  rig.publish("abcd");
  const Ids bundles = rig.pool.take(2);
  const uint32_t bank = rig.banks.take();
  const auto refused = [&](const char* text, uint32_t of_bank, const Ids& of, const char* part) {
    check_throws<std::logic_error>([&] { rig.cache.publish(ids(text), of_bank, of); }, part);
    check_equal(rig.cache.n_checkpoints(), 1U);
    rig.check(bundles, Ids{bank});
  };
  refused("", bank, {}, "of 0 tokens");
  refused("efgh", bank, bundles, "got 2 bundles, want 1");
  refused("efghi", bank, Ids{bundles[0]}, "got 1 bundles, want 2");
  refused("efghi", bank, {}, "without bundles");
  const uint32_t spare = rig.banks.take();
  rig.banks.drop(spare);
  refused("efghi", spare, bundles, "has no owner");
  refused("efghi", 1 << 20, bundles, "");
  const Ids gone = rig.pool.take(1);
  rig.pool.drop(gone);
  refused("efghi", bank, Ids{bundles[0], gone[0]}, "has no owner");
  check_throws<std::logic_error>([&] { const TokenTree none(0); }, "blocks of no tokens");
}

void test_models_without_attention_have_no_bundles() {
  Rig rig(library_path);
  const Ids banks{rig.banks.take(), rig.banks.take()};
  rig.cache.publish(ids("abcdef"), banks[0], {});
  rig.cache.publish(ids("abcdefgh"), banks[1], {});
  check(rig.peek("abcdefgh").bundles.empty());
  check_equal(rig.peek("abcdefgh").bank, banks[1]);
  check_throws<std::logic_error>([&] { rig.publish("xyz"); }, "with bundles, unlike the others");
  check(rig.cache.evict_one() && rig.cache.evict_one() && !rig.cache.evict_one());
}

void test_all_comes_back_at_the_end() {
  Rig rig(library_path);
  {
    PrefixCache cache(rig.pool, rig.banks, kBlock, kPlenty);
    const Ids bundles = rig.pool.take(3);
    const uint32_t bank = rig.banks.take();
    cache.publish(ids("abcdefghi"), bank, bundles);
    rig.banks.drop(bank);
    rig.pool.drop(bundles);
    check(rig.pool.n_used() > 0);
  }
  rig.banks.reclaim();
  check_equal(rig.pool.n_used(), 0U);
}

// The n-th allocation fails, for every n: then nothing was published, shared or evicted.
void test_failed_publish_changes_nothing() {
  uint64_t room = 0;
  int n_failed = 0;
  for (int64_t n = 0;; ++n) {
    Rig rig(library_path, room == 0 ? kPlenty : room);
    rig.publish("abcdefghijklmnopqrst");
    rig.publish("abcdXYZ");
    if (std::exchange(room, rig.cache.bytes()) != room) continue;  // the limit: what two take
    const std::vector<int32_t> tokens = ids("abcdefghijklmnopqrs123456");
    const Ids bundles = rig.pool.take(7);
    const Ids banks{rig.banks.take()};
    bool failed = false;
    news_left = n - 1;
    try {
      rig.cache.publish(tokens, banks[0], bundles);
    } catch (const std::bad_alloc&) {
      failed = true;
    }
    news_left = -1;
    rig.check(bundles, banks);
    if (!failed) {
      check(rig.cache.contains(tokens));
      break;
    }
    ++n_failed;
    check(rig.contains("abcdefghijklmnopqrst") && rig.contains("abcdXYZ"));
    check_equal(rig.cache.n_checkpoints(), 2U);
    check_equal(rig.cache.bytes(), room);
    check_equal(rig.pool.refs(bundles[6]), 1U);
    rig.cache.publish(tokens, banks[0], bundles);
    check(rig.cache.contains(tokens));
  }
  check(n_failed > 10);
}

void test_integrity_sees_what_others_did() {
  Rig rig(library_path);
  rig.publish("abcdefgh");
  const Recall recall = rig.peek("abcdefgh");
  rig.pool.drop(recall.bundles);
  check_throws<std::logic_error>([&] { rig.cache.check_integrity(); }, "held 1 times, but has 0");
  check_equal(rig.pool.take(2).size(), 2U);  // the same ones again
  rig.cache.check_integrity();
  rig.banks.drop(recall.bank);
  check_throws<std::logic_error>([&] { rig.cache.check_integrity(); }, "bank");
  check_equal(rig.banks.take(), recall.bank);
  rig.cache.check_integrity();
}

}  // namespace
}  // namespace mtlqwen::testing

int main(int n_arguments, char** arguments) {
  using namespace mtlqwen::testing;
  if (n_arguments < 2) return 2;
  library_path = arguments[1];
  return run({{"finds the deepest within the limit", test_finds_the_deepest_within_the_limit},
              {"known reaches into blocks and tails", test_known_reaches_into_blocks_and_tails},
              {"recall names bank and bundles", test_recall_names_bank_and_bundles},
              {"one block, one bundle", test_checkpoints_of_one_block_share_its_bundle},
              {"the same tokens twice", test_the_same_tokens_twice},
              {"the first leaves the bundles", test_the_first_leaves_the_bundles_of_a_block},
              {"what is no checkpoint is refused", test_what_is_no_checkpoint_is_refused},
              {"models without attention", test_models_without_attention_have_no_bundles},
              {"all comes back at the end", test_all_comes_back_at_the_end},
              {"failed publish changes nothing", test_failed_publish_changes_nothing},
              {"integrity sees what others did", test_integrity_sees_what_others_did}},
             n_arguments > 2 ? arguments[2] : "");
}
