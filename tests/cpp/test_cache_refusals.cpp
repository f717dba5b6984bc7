// cache/: the first, second, third ... request for memory of the process is refused in the middle of
// a call, which then has changed nothing.
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "cache/gdn_banks.hpp"
#include "check.hpp"
#include "kv_probe.hpp"

namespace {

thread_local uint32_t refused_request = 0;  // the how manyeth from now on; 0: none

}  // namespace

// Not inlined: g++ 12 takes malloc and free in them for mismatched otherwise.
[[gnu::noinline]] void* operator new(std::size_t size) {
  const bool is_refused = refused_request != 0 && --refused_request == 0;
  void* memory = is_refused ? nullptr : std::malloc(size == 0 ? 1 : size);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }

namespace mtlqwen::testing {
namespace {

std::string library_path;  // the program's first argument

// Slot 0 goes on inside of a block that is shared; slot 1 is empty.
struct Scene : KvMemory {
  GdnBanks banks{device, pool, 20'000, 4, 0};
  uint32_t bank;
  std::vector<uint32_t> kept;

  Scene() : KvMemory(library_path), bank(banks.take()) {
    kv.reserve(0, 200, 0);
    probe.write(1, 0, 150, 1.0F);
    kept = copy_of(kv.bundles(0));
    pool.share(kept);
    banks.confirm();
  }

  void check_unchanged() {
    check(copy_of(kv.bundles(0)) == kept);
    check(kv.bundles(1).empty());
    check(kv.pending_copies().empty());
    check_all();
    check(probe.holds(1, 0, 150, 1.0F));
  }
  void check_all() {
    std::vector<uint32_t> others(kept);
    for (uint32_t i = 0; i < banks.no_owners().size(); ++i) {
      others.insert(others.end(), banks.bundles(i).begin(), banks.bundles(i).end());
    }
    check_integrity(others);
    std::vector<uint32_t> owners = banks.no_owners();
    ++owners.at(bank);
    banks.check_integrity(owners);
  }
  // Whatever is mapped still would be told by the next round.
  void check_nothing_is_left() {
    kv.release(0);
    kv.release(1);
    banks.drop(bank);
    banks.reclaim();
    pool.drop(kept);
    check_equal(pool.n_used(), 0U);
    settle();
    if (!device.is_software()) return;
    const KvLayout& layout = kv.layout();
    for (uint64_t block = 0; block < layout.window_block() + layout.slot_blocks(); ++block) {
      check(!is_readable(kv.plane_address(2) + block * 16 * kKiB));
    }
  }
};

using Call = std::function<void(Scene&)>;

// Returns how many requests the call makes.
uint32_t refuse_each(const Call& call) {
  for (uint32_t nth = 1;; ++nth) {
    Scene scene;
    bool was_refused = false;
    refused_request = nth;
    try {
      call(scene);
    } catch (const std::bad_alloc&) {
      was_refused = true;
    }
    const bool is_done = refused_request != 0;
    refused_request = 0;
    if (is_done) return nth - 1;
    if (was_refused) scene.check_unchanged();
    scene.check_nothing_is_left();
  }
}

void test_a_refused_reserve() {
  check(refuse_each([](Scene& scene) { scene.kv.reserve(0, 600, 200); }) > 5);
  check(refuse_each([](Scene& scene) { scene.kv.reserve(1, 600, 0); }) > 5);
}

void test_a_refused_adoption() {
  check(refuse_each([](Scene& scene) { scene.kv.adopt(1, scene.kept); }) > 3);
}

void test_a_refused_window() {
  check(refuse_each([](Scene& scene) {
          scene.kv.map_window(scene.kept);
          const uint32_t rest = std::exchange(refused_request, 0);
          scene.kv.unmap_window();
          refused_request = rest;
        }) > 3);
}

void test_a_refused_bank() {
  check(refuse_each([](Scene& scene) {
          const uint32_t taken = scene.banks.take();
          scene.banks.drop(taken);
        }) > 3);
}

void test_a_refused_reclaim() {
  check(refuse_each([](Scene& scene) {
          const uint32_t rest = std::exchange(refused_request, 0);
          const uint32_t taken = scene.banks.take();
          scene.banks.drop(taken);
          refused_request = rest;
          scene.banks.reclaim();
        }) > 0);
}

}  // namespace
}  // namespace mtlqwen::testing

int main(int n_arguments, char** arguments) {
  using namespace mtlqwen::testing;
  if (n_arguments < 2) return 2;
  library_path = arguments[1];
  return run({{"a refused reserve", test_a_refused_reserve},
              {"a refused adoption", test_a_refused_adoption},
              {"a refused window", test_a_refused_window},
              {"a refused bank", test_a_refused_bank},
              {"a refused reclaim", test_a_refused_reclaim}},
             n_arguments > 2 ? arguments[2] : "");
}
