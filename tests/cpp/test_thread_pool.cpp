// hostmetal: the threads that run threadgroups, how engines take turns at them, and the cores that they are counted by.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <mutex>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "check.hpp"
#include "hostmetal/cpu.hpp"
#include "hostmetal/thread_pool.hpp"

namespace mtlqwen::testing {
namespace {

using hostmetal::ThreadPool;
using Turn = ThreadPool::Turn;

void nap(int microseconds) { std::this_thread::sleep_for(std::chrono::microseconds(microseconds)); }

// Waits for what other threads bring about; false after a time that no working pool takes.
template <class Done>
bool eventually(const Done& done) {
  for (int i = 0; i < 20'000 && !done(); ++i) nap(1000);
  return done();
}

// How many bodies run at a time, and on which threads.
struct Watch {
  std::atomic<int> inside{0};
  std::atomic<int> most{0};
  std::mutex mutex;
  std::set<std::thread::id> threads;

  void enter() {
    const int now = ++inside;
    int seen = most;
    while (seen < now && !most.compare_exchange_weak(seen, now)) {}
    const std::lock_guard lock(mutex);
    threads.insert(std::this_thread::get_id());
  }
  void leave() { --inside; }
};

// More threads than this machine has cores, several turns at once, pauses that let helpers sleep, and threads that are held up at
// random places: first or last, early in a part or late.
void test_all_units_are_covered_once() {
  ThreadPool pool(7);
  const auto work = [&pool](uint32_t seed) {
    std::mt19937 random(seed);
    for (int round = 0; round < 300; ++round) {
      const uint64_t units = random() % (round % 3 == 0 ? 3000 : 60);
      const auto salt = static_cast<uint32_t>(random());
      Turn turn(pool, 1 + static_cast<unsigned>(random() % 7));
      std::vector<std::atomic<int>> seen(units);
      auto body = [&seen, salt](uint64_t first, uint64_t count) {
        const uint32_t mixed = (static_cast<uint32_t>(first) + salt) * 0x9E3779B9U;
        if (mixed >> 28 == 0) nap(static_cast<int>(mixed >> 20 & 255));
        for (uint64_t i = first; i < first + count; ++i) ++seen[i];
      };
      turn.run(units, body);
      for (const auto& one : seen) check_equal(one.load(), 1);
      if (round % 50 == 0) nap(1000);
    }
  };
  std::vector<std::thread> threads;
  for (uint32_t seed = 1; seed <= 3; ++seed) threads.emplace_back(work, seed);
  for (std::thread& thread : threads) thread.join();
}

void test_more_units_than_a_word_counts() {
  ThreadPool pool(3);
  Turn turn(pool, 3);
  constexpr uint64_t kUnits = (uint64_t{5} << 30) + 7;
  std::atomic<uint64_t> n{0};
  std::atomic<uint64_t> sum_of_ends{0};
  auto body = [&](uint64_t first, uint64_t count) {
    n += count;
    sum_of_ends += (first + count) * (first + count) - first * first;  // telescopes, modulo 2^64
  };
  turn.run(kUnits, body);
  check_equal(n.load(), kUnits);
  check_equal(sum_of_ends.load(), kUnits * kUnits);
}

void test_a_turn_has_its_threads_and_no_more() {
  ThreadPool pool(8);
  for (const unsigned n_threads : {1U, 2U, 3U, 8U, 3U, 1U}) {
    Watch watch;
    Turn turn(pool, n_threads);
    auto body = [&](uint64_t /*first*/, uint64_t count) {
      for (uint64_t i = 0; i < count; ++i) {
        watch.enter();
        // The first units wait until all threads are there.
        check(eventually([&] { return watch.most >= static_cast<int>(n_threads); }));
        nap(50);
        watch.leave();
      }
    };
    turn.run(8 * n_threads, body);
    check_equal(watch.most.load(), static_cast<int>(n_threads));
    check_equal(watch.threads.size(), size_t{n_threads});
    check(watch.threads.contains(std::this_thread::get_id()));
  }
}

// Everybody else goes on with what is left while one thread is stuck with a unit.
void test_a_slow_thread_holds_up_its_own_unit_only() {
  ThreadPool pool(2);
  Turn turn(pool, 2);
  for (uint64_t slow = 0; slow < 8; ++slow) {
    std::atomic<uint64_t> n_done{0};
    std::atomic<bool> was_alone{false};
    auto body = [&](uint64_t first, uint64_t count) {
      for (uint64_t i = first; i < first + count; ++i) {
        if (i == slow) was_alone = eventually([&] { return n_done == 7; });
        ++n_done;
      }
    };
    turn.run(8, body);  // few enough to be claimed one by one
    check(was_alone);
  }
}

// Of many units it holds up a piece, and what it has not begun goes to the others in a few ranges, not in many.
void test_the_rest_of_a_slow_thread_is_stolen_in_halves() {
  constexpr uint64_t kUnits = 1024;
  ThreadPool pool(4);
  for (const unsigned n_threads : {2U, 4U}) {
    Turn turn(pool, n_threads);
    for (const uint64_t slow : {0, 300, 511, 512, 1000, 1023}) {
      std::atomic<uint64_t> n_done{0};
      std::atomic<uint64_t> n_held_up{kUnits};
      std::atomic<int> n_ranges{0};
      auto body = [&](uint64_t first, uint64_t count) {
        thread_local uint64_t next = 0;
        n_ranges += first != next;
        next = first + count;
        if (first <= slow && slow < first + count) {
          n_held_up = count;
          check(eventually([&] { return n_done == kUnits - count; }));
        }
        n_done += count;
      };
      turn.run(kUnits, body);
      check_equal(n_done.load(), kUnits);
      check(n_held_up <= kUnits / n_threads / 4);
      check(n_ranges <= static_cast<int>(n_threads) * 12);
    }
  }
}

// Who takes the first part is stuck with its first piece, who steals from it first is stuck as well; the third does all the rest.
void test_what_was_stolen_can_be_stolen_again() {
  constexpr uint64_t kUnits = 600;
  ThreadPool pool(3);
  Turn turn(pool, 3);
  for (int round = 0; round < 20; ++round) {
    std::atomic<bool> is_thief_stuck{false};
    std::atomic<uint64_t> n_done{0};
    std::atomic<uint64_t> n_held_up{0};
    auto body = [&](uint64_t first, uint64_t count) {
      if (first == 0 || (first < kUnits / 3 && !is_thief_stuck.exchange(true))) {
        n_held_up += count;
        check(eventually([&] { return n_done + n_held_up >= kUnits; }));
      }
      n_done += count;
    };
    turn.run(kUnits, body);
    check_equal(n_done.load(), kUnits);
  }
}

void test_turns_share_the_threads() {
  constexpr int kThreads = 3;
  ThreadPool pool(kThreads);
  std::atomic<int> running{0};
  std::atomic<int> most{0};
  const auto work = [&](int n) {
    for (int i = 0; i < 200; ++i) {
      Turn turn(pool, static_cast<unsigned>(n));
      const int now = running += n;
      int seen = most;
      while (seen < now && !most.compare_exchange_weak(seen, now)) {}
      if (i % 8 == 0) nap(20);
      running -= n;
    }
  };
  std::vector<std::thread> threads;
  for (const int n : {1, 2, 3, 1}) threads.emplace_back(work, n);
  for (std::thread& thread : threads) thread.join();
  check(most <= kThreads);
}

void test_small_turns_run_side_by_side() {
  ThreadPool pool(2);
  std::atomic<int> arrived{0};
  std::atomic<int> met{0};
  const auto meet = [&] {
    const Turn turn(pool, 1);
    ++arrived;
    met += eventually([&] { return arrived == 2; });
  };
  std::thread first(meet);
  std::thread second(meet);
  first.join();
  second.join();
  check_equal(met.load(), 2);
}

void test_a_turn_of_more_threads_than_the_pool_has() {
  ThreadPool pool(2);
  std::atomic<bool> is_first_over{false};
  std::atomic<bool> has_begun{false};
  std::thread large;
  {
    const Turn small(pool, 1);
    large = std::thread([&] {
      Turn turn(pool, 5);
      has_begun = true;
      check(is_first_over);
      std::atomic<int> n{0};
      auto body = [&](uint64_t, uint64_t count) { n += static_cast<int>(count); };
      turn.run(100, body);
      check_equal(n.load(), 100);
    });
    nap(5000);
    check(!has_begun);
    is_first_over = true;
  }
  large.join();
  check(has_begun);
}

// Who waits is let in by a turn that goes on, and a large one is not overtaken for ever by small ones.
void test_a_long_turn_lets_others_in() {
  ThreadPool pool(2);
  std::atomic<int> n_done{0};
  std::atomic<bool> is_long_over{false};
  std::vector<std::thread> others;
  {
    Turn long_turn(pool, 2);
    for (const unsigned n : {2U, 1U, 2U}) {
      others.emplace_back([&, n] {
        const Turn turn(pool, n);
        check(!is_long_over);
        ++n_done;
      });
    }
    const bool all_got_in = eventually([&] {
      long_turn.yield();
      return n_done == 3;
    });
    check(all_got_in);
    is_long_over = true;
  }
  for (std::thread& other : others) other.join();
}

void test_quotas_of_control_groups() {
  using hostmetal::quota_cores;
  check_equal(quota_cores("max 100000"), 0U);
  check_equal(quota_cores("200000 100000"), 2U);
  check_equal(quota_cores("150000 100000"), 2U);
  check_equal(quota_cores("1000 100000"), 1U);
  check_equal(quota_cores("-1 100000"), 0U);
  check_equal(quota_cores(""), 0U);
}

void test_threads_of_one_core_count_once() {
  const auto pairs = [](unsigned cpu) {  // 0 and 4, 1 and 5, .. share a core
    return std::to_string(cpu % 4) + "," + std::to_string(cpu % 4 + 4);
  };
  const std::vector<unsigned> all{0, 1, 2, 3, 4, 5, 6, 7};
  check_equal(hostmetal::count_cores(all, pairs), 4U);
  check_equal(hostmetal::count_cores(std::vector<unsigned>{0, 4, 5}, pairs), 2U);
  check_equal(hostmetal::count_cores(all, [](unsigned) { return std::string(); }), 8U);
  check(hostmetal::usable_cores() >= 1);
  check(hostmetal::usable_cores() <= hostmetal::usable_cpus());
}

void test_denormals_are_flushed_for_a_while() {
  volatile float tiny = 1e-40F;
  volatile float one = 1.0F;
  check(tiny * one != 0.0F);
  {
    const hostmetal::DenormalsFlushed flushed;
    check_equal(tiny * one, 0.0F);
  }
  check(tiny * one != 0.0F);
}

}  // namespace
}  // namespace mtlqwen::testing

int main() {
  using namespace mtlqwen::testing;
  return run({
      {"all_units_are_covered_once", test_all_units_are_covered_once},
      {"more_units_than_a_word_counts", test_more_units_than_a_word_counts},
      {"a_turn_has_its_threads_and_no_more", test_a_turn_has_its_threads_and_no_more},
      {"a_slow_thread_holds_up_its_own_unit_only", test_a_slow_thread_holds_up_its_own_unit_only},
      {"the_rest_of_a_slow_thread_is_stolen_in_halves",
       test_the_rest_of_a_slow_thread_is_stolen_in_halves},
      {"what_was_stolen_can_be_stolen_again", test_what_was_stolen_can_be_stolen_again},
      {"turns_share_the_threads", test_turns_share_the_threads},
      {"small_turns_run_side_by_side", test_small_turns_run_side_by_side},
      {"a_turn_of_more_threads_than_the_pool_has", test_a_turn_of_more_threads_than_the_pool_has},
      {"a_long_turn_lets_others_in", test_a_long_turn_lets_others_in},
      {"quotas_of_control_groups", test_quotas_of_control_groups},
      {"threads_of_one_core_count_once", test_threads_of_one_core_count_once},
      {"denormals_are_flushed_for_a_while", test_denormals_are_flushed_for_a_while},
  });
}
