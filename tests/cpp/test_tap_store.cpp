// TapStore: every row has one owner, through any order of passes, keeps, settlings and drops.
#include <algorithm>
#include <deque>
#include <random>
#include <vector>

#include "check.hpp"
#include "model/tap_store.hpp"

namespace mtlqwen::testing {
namespace {

constexpr uint32_t kSlots = 5;
constexpr uint32_t kCapacity = 40;

void test_lowest_rows_first() {
  TapStore store(2, 8);
  store.take(3);
  check(std::ranges::equal(store.taken(), std::vector<uint32_t>{0, 1, 2}));
  store.keep(1, 10, 1, 1);
  check_equal(store.n_free(), 7U);
  store.take(3);
  check(std::ranges::equal(store.taken(), std::vector<uint32_t>{0, 2, 3}));
  check_equal(store.waiting(1).position, 10U);
  check(store.waiting(1).rows == std::vector<uint32_t>{1});
}

void test_a_gap_is_refused() {
  TapStore store(1, 8);
  store.take(4);
  store.keep(0, 5, 0, 2);
  check_throws<std::logic_error>([&] { store.keep(0, 8, 2, 1); }, "a gap in slot 0");
  check_throws<std::logic_error>([&] { store.keep(0, 6, 2, 1); }, "a gap in slot 0");
  store.keep(0, 7, 2, 1);
  store.drop(0);
  store.keep(0, 0, 3, 1);  // another sequence
  check_throws<std::logic_error>([&] { store.take(8); }, "no room");
}

// Against a model that names each row by what was put there.
void test_random_orders() {
  std::minstd_rand random(1);
  const auto below = [&](uint32_t n) { return static_cast<uint32_t>(random() % n); };
  TapStore store(kSlots, kCapacity);
  std::vector<std::deque<uint32_t>> model(kSlots);  // rows, in order
  std::vector<uint32_t> next(kSlots, 0);            // position
  for (int round = 0; round < 20'000; ++round) {
    const uint32_t slot = below(kSlots);
    switch (below(4)) {
    case 0: {
      store.drop(slot);
      model[slot].clear();
      next[slot] = below(100);
      break;
    }
    case 1: {
      const auto n = below(static_cast<uint32_t>(model[slot].size()) + 1);
      store.settle(slot, n);
      model[slot].erase(model[slot].begin(), model[slot].begin() + n);
      break;
    }
    default: {
      const uint32_t n = std::min(store.n_free(), 1 + below(9));
      store.take(n);
      const std::vector<uint32_t> rows(store.taken().begin(), store.taken().end());
      for (uint32_t first = 0; first < n;) {
        const uint32_t owner = below(kSlots);
        const uint32_t count = 1 + below(n - first);
        const uint32_t kept = below(count + 1);
        store.keep(owner, next[owner], first, kept);
        for (uint32_t i = 0; i < kept; ++i) model[owner].push_back(rows[first + i]);
        next[owner] += kept;
        first += count;
      }
    }
    }
    std::vector<uint32_t> owned;
    for (uint32_t i = 0; i < kSlots; ++i) {
      check(std::ranges::equal(store.waiting(i).rows, model[i]));
      if (!model[i].empty())
        check_equal(store.waiting(i).position + model[i].size(), size_t{next[i]});
      owned.insert(owned.end(), model[i].begin(), model[i].end());
    }
    check_equal(store.n_free() + owned.size(), size_t{kCapacity});
    std::ranges::sort(owned);
    check(std::ranges::adjacent_find(owned) == owned.end());
  }
}

}  // namespace
}  // namespace mtlqwen::testing

int main() {
  using namespace mtlqwen::testing;
  return run({{"lowest rows first", test_lowest_rows_first},
              {"a gap is refused", test_a_gap_is_refused},
              {"random orders", test_random_orders}});
}
