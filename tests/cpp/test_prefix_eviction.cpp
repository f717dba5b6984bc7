// cache/: what the prefix cache gives up, and what becomes free.
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "cache_rig.hpp"

namespace mtlqwen::testing {
namespace {

std::string library_path;  // the program's first argument

using Ids = std::vector<uint32_t>;

void test_an_interior_checkpoint_goes_and_the_deeper_one_stays_whole() {
  Rig rig(library_path);
  const Ids bundles = rig.pool.take(3);
  for (const uint32_t n : {6U, 12U}) {
    const uint32_t bank = rig.banks.take();
    const std::string text = "abcdefghijkl";
    rig.cache.publish(ids(text.substr(0, n)), bank, std::span(bundles).first(blocks_of(n)));
    rig.banks.drop(bank);
  }
  check_equal(rig.find("abcdefghijkl"), 12U);  // used: stays
  check(rig.cache.evict_one());
  check(!rig.contains("abcdef") && rig.contains("abcdefghijkl"));
  check(rig.peek("abcdefghijkl").bundles == bundles);
  rig.check(bundles);
  check(!rig.peek("abcdefghijkl").evicted);
  check(rig.peek("abcdefghijkl", 11).evicted);
  check(rig.cache.evict_one());
  rig.check(bundles);
  check_equal(rig.cache.bytes(), 0U);
}

void test_evicted_says_why_a_prompt_runs_again() {
  Rig rig(library_path);
  rig.publish("abcdefghij");
  check(!rig.peek("abcdefghijk").evicted);
  check(rig.cache.evict_one());
  check(rig.peek("abcdefghijk").evicted);
  check(rig.peek("abcdefghij").evicted);
  check(!rig.peek("abcdefghij", 9).evicted);  // it could not have been used
  check(!rig.peek("abcdefghi").evicted);
  check(!rig.peek("abcdefghiX").evicted);
  check(!rig.peek("Xbcdefghij").evicted);
  check_equal(rig.peek("abcdefghij").known, 0U);
  rig.publish("abcd");
  check(rig.peek("abcdefghij").evicted);
  rig.publish("abcdefghijk");
  check(!rig.peek("abcdefghijk").evicted);
  check(rig.peek("abcdefghijX").evicted);
  check_equal(rig.cache.counters().evictions, 1U);
  rig.cache.clear();
  check(!rig.peek("abcdefghij").evicted);
  check_equal(rig.cache.counters().evictions, 1U);
}

void test_uses_protect_and_age() {
  Rig rig(library_path);
  rig.publish("aaaaaaaa");
  rig.publish("bbbbbbbb");
  rig.publish("cccccccc");
  check_equal(rig.find("aaaaaaaa"), 8U);
  check_equal(rig.find("aaaaaaaaa"), 8U);
  check_equal(rig.find("aaa"), 0U);
  check(rig.cache.counters().hits == 2 && rig.cache.counters().misses == 1);
  check(rig.cache.evict_one() && !rig.contains("bbbbbbbb"));  // of equals the one idle longest
  rig.publish("cccccccc");                                    // recent again: above the clock
  rig.publish("dddddddd");
  check(rig.cache.evict_one() && !rig.contains("cccccccc"));
  // Three uses weigh as much as two evictions' worth of clock; then the old ones go.
  rig.publish("eeeeeeee");
  check(rig.cache.evict_one() && !rig.contains("dddddddd"));
  rig.publish("ffffffff");
  check(rig.cache.evict_one() && rig.contains("ffffffff") && !rig.contains("aaaaaaaa"));
}

void test_benefit_is_by_byte() {
  Rig rig(library_path);
  rig.publish("abcdefghijklmnop");      // 16 tokens for 6 bundles
  rig.publish("qr");                    // 2 for 3
  rig.publish("abcdefghijklmnopqrst");  // 4 more for 3
  check(rig.cache.evict_one() && !rig.contains("qr"));
  check(rig.cache.evict_one() && !rig.contains("abcdefghijklmnopqrst"));
}

// Without the shallower one the deeper is worth all of its tokens.
void test_benefit_follows_the_neighbours() {
  Rig rig(library_path);
  rig.publish("abcdefghijklmnop");
  rig.publish("abcdefghijklmnopqrst");
  for (int i = 0; i < 2; ++i) check_equal(rig.find("abcdefghijklmnopqrst"), 20U);
  check(rig.cache.evict_one() && !rig.contains("abcdefghijklmnop"));
  rig.publish("uvwx");
  rig.publish("01234567");  // above what the four tokens alone were worth
  check(rig.cache.evict_one() && !rig.contains("uvwx"));
  check(rig.cache.evict_one() && !rig.contains("01234567"));
  check(rig.contains("abcdefghijklmnopqrst"));
}

void test_publishing_keeps_to_the_limit() {
  uint64_t three = 0;
  {
    Rig rig(library_path);
    for (const char* text : {"aaaaaaaa", "bbbbbbbb", "cccccccc"}) rig.publish(text);
    three = rig.cache.bytes();
  }
  Rig rig(library_path, three);
  for (const char* text : {"aaaaaaaa", "bbbbbbbb", "cccccccc"}) rig.publish(text);
  check_equal(rig.cache.n_checkpoints(), 3U);
  for (const char* text : {"aaaaaaaa", "bbbbbbbb", "cccccccc"}) check_equal(rig.find(text), 8U);
  rig.publish("dddddddd");  // worth less than the others, but it is new
  check(rig.contains("dddddddd") && !rig.contains("aaaaaaaa"));
  check(rig.cache.bytes() <= three);
  rig.publish("eeeeeeee");
  check(rig.contains("eeeeeeee") && !rig.contains("dddddddd"));
  rig.check();
  rig.publish(std::string(40, 'z'));  // alone more than the limit
  check_equal(rig.cache.n_checkpoints(), 3U);
  check_equal(rig.cache.counters().evictions, 2U);
  check_equal(rig.cache.counters().published, 5U);
  rig.publish(std::string(24, 'z'));  // alone all there is room for
  check(rig.contains(std::string(24, 'z')));
  check_equal(rig.cache.n_checkpoints(), 1U);
  rig.check();
}

void test_without_room_nothing_is_kept() {
  Rig rig(library_path, 0);
  rig.publish("abcdefgh");
  check_equal(rig.cache.n_checkpoints(), 0U);
  check_equal(rig.cache.bytes(), 0U);
  check_equal(rig.find("abcdefgh"), 0U);
  check(!rig.peek("abcdefgh").evicted);
  check(!rig.cache.evict_one());
  rig.check();
}

void test_a_bank_that_is_read_outlives_its_checkpoint() {
  Rig rig(library_path);
  rig.publish("abcdefgh");
  const Recall recall = rig.cache.find(ids("abcdefghi"), kAll);
  rig.pool.share(recall.bundles);
  rig.banks.share(recall.bank);
  check_equal(rig.cache.reclaimable_bundles(), 0U);
  check(rig.cache.evict_one());
  check_equal(rig.banks.refs(recall.bank), 1U);
  check_equal(rig.pool.refs(recall.bundles[1]), 1U);
  check(rig.banks.take() != recall.bank);
  rig.banks.reclaim();
  rig.pool.drop(recall.bundles);
  rig.banks.drop(recall.bank);
}

void test_reclaimable_is_what_nobody_else_holds() {
  Rig rig(library_path);
  check_equal(rig.cache.reclaimable_bundles(), 0U);
  const Ids bundles = rig.pool.take(2);
  const Ids banks{rig.banks.take(), rig.banks.take()};
  rig.cache.publish(ids("abcde"), banks[0], bundles);
  rig.cache.publish(ids("abcdefgh"), banks[1], bundles);
  check_equal(rig.cache.reclaimable_bundles(), 0U);
  rig.banks.drop(banks[0]);
  check_equal(rig.cache.reclaimable_bundles(), kBankBundles);
  rig.pool.drop(Ids{bundles[1]});  // held twice, by the cache alone
  check_equal(rig.cache.reclaimable_bundles(), kBankBundles + 1);
  rig.pool.drop(Ids{bundles[0]});
  rig.banks.drop(banks[1]);
  check_equal(rig.cache.reclaimable_bundles(), 2 * kBankBundles + 2);
  while (rig.cache.evict_one()) rig.check();
  rig.banks.reclaim();
  check_equal(rig.pool.n_used(), 0U);
}

}  // namespace
}  // namespace mtlqwen::testing

int main(int n_arguments, char** arguments) {
  using namespace mtlqwen::testing;
  if (n_arguments < 2) return 2;
  library_path = arguments[1];
  return run({{"an interior checkpoint goes",
               test_an_interior_checkpoint_goes_and_the_deeper_one_stays_whole},
              {"evicted says why", test_evicted_says_why_a_prompt_runs_again},
              {"uses protect and age", test_uses_protect_and_age},
              {"benefit is by byte", test_benefit_is_by_byte},
              {"benefit follows the neighbours", test_benefit_follows_the_neighbours},
              {"publishing keeps to the limit", test_publishing_keeps_to_the_limit},
              {"without room nothing is kept", test_without_room_nothing_is_kept},
              {"a bank that is read outlives", test_a_bank_that_is_read_outlives_its_checkpoint},
              {"reclaimable", test_reclaimable_is_what_nobody_else_holds}},
             n_arguments > 2 ? arguments[2] : "");
}
