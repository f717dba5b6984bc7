// cache/: the arithmetic of tiles and the bookkeeping of bundles, without a device.
#include <cstdint>
#include <set>
#include <span>
#include <stdexcept>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "cache/bindings.hpp"
#include "cache/kv_layout.hpp"
#include "check.hpp"

namespace mtlqwen::testing {
namespace {

constexpr uint64_t kKiB = 1024;
constexpr uint64_t kMiB = 1024 * kKiB;
constexpr uint64_t kNoLimit = 1ULL << 40;

// 2 attention layers, 1 kv head of 64: a block is one 16 KiB tile of each of 4 planes.
constexpr KvShape kSmall{.n_planes = 4, .token_bytes = 128, .slots = 3, .context = 1000};

void test_page_is_the_largest_that_divides() {
  const auto page = [](uint64_t token_bytes) {
    const KvLayout layout({.n_planes = 2, .token_bytes = token_bytes, .slots = 1, .context = 128},
                          kNoLimit);
    return std::pair(layout.page_bytes() / kKiB, layout.block_tiles());
  };
  check(page(4 * 256 * 2) == std::pair<uint64_t, uint64_t>(256, 1));  // 4B, 9B and 27B
  check(page(2 * 256 * 2) == std::pair<uint64_t, uint64_t>(64, 2));   // 0.8B, 2B
  check(page(64 * 2) == std::pair<uint64_t, uint64_t>(16, 1));
  check(page(3 * 64 * 2) == std::pair<uint64_t, uint64_t>(16, 3));
  check(page(8 * 256 * 2) == std::pair<uint64_t, uint64_t>(256, 2));
  check_throws<ModelError>([&] { (void)page(32 * 2); }, "8192");
  check_throws<ModelError>([&] { (void)page(UINT64_MAX / 2); }, "whole pages");
}

void test_layout_limits() {
  const auto layout = [](uint32_t slots, uint32_t context) {
    return KvLayout({.n_planes = 2, .token_bytes = 2048, .slots = slots, .context = context},
                    1ULL << 30);
  };
  check_equal(layout(2, 262'144).plane_bytes(), 1ULL << 30);
  check_throws<CapacityError>([&] { (void)layout(3, 262'144); }, "3 slots of 262144 tokens");
  check_throws<CapacityError>([&] { (void)layout(1, UINT32_MAX); }, "4294967295");
}

// Every (plane, slot, block) owns its tiles alone, and no buffer is larger than the device allows.
void test_virtual_tiles_do_not_overlap() {
  for (const uint64_t limit : {kNoLimit, 1 * kMiB, 900 * kKiB, 384 * kKiB}) {
    const KvLayout layout(kSmall, limit);
    check_equal(layout.slot_tokens(), 1024U);
    std::set<std::pair<uint32_t, uint64_t>> used;
    for (uint32_t plane = 0; plane < layout.n_planes(); ++plane) {
      const uint32_t buffer = layout.buffer_of(plane);
      check(layout.buffer_bytes(buffer) <= limit);
      for (uint32_t slot = 0; slot < layout.slots(); ++slot) {
        for (uint32_t block = 0; block < layout.slot_blocks(); ++block) {
          const uint64_t tile = layout.tile(plane, slot, block);
          const uint64_t address =
              layout.plane_offset(plane) +
              (uint64_t{slot} * layout.slot_tokens() + block * kBlockTokens) * kSmall.token_bytes;
          check_equal(tile * layout.page_bytes(), address);
          for (uint64_t i = 0; i < layout.block_tiles(); ++i) {
            check(used.insert({buffer, tile + i}).second);
            check((tile + i + 1) * layout.page_bytes() <= layout.buffer_bytes(buffer));
          }
        }
      }
    }
  }
}

// Two mapped tiles never share a heap tile, and all of a heap's tiles are used.
void test_heap_tiles_do_not_overlap() {
  const KvLayout layout(kSmall, 900 * kKiB);
  const KvHeaps heaps{.n_bundles = 24, .heap_bundles = 7};  // the last heap holds 3
  check_equal(heaps.n_heaps(), 4U);
  std::set<std::pair<uint32_t, uint64_t>> physical;
  uint64_t n_tiles = 0;
  for (uint32_t slot = 0; slot < 3; ++slot) {
    std::vector<uint32_t> bundles(8);
    for (uint32_t i = 0; i < 8; ++i) bundles[i] = (5 * (slot * 8 + i)) % 24;
    for (const KvMapping& mapping : layout.map_runs(slot, 0, bundles, heaps)) {
      for (const MappingRun& run : mapping.runs) {
        n_tiles += run.n_tiles;
        for (uint64_t i = 0; i < run.n_tiles; ++i) {
          check(physical.insert({mapping.heap, run.heap_tile + i}).second);
          check(run.heap_tile + i < heaps.bundles_in(mapping.heap) * 4);
        }
      }
    }
  }
  check_equal(n_tiles, 24U * 4);
}

void test_adjacent_tiles_are_one_run() {
  const KvLayout layout(kSmall, kNoLimit);
  const KvHeaps heaps{.n_bundles = 24, .heap_bundles = 24};
  const std::vector<uint32_t> adjacent{3, 4, 5, 6, 7};
  const std::vector<KvMapping> one = layout.map_runs(1, 2, adjacent, heaps);
  check_equal(one.size(), 1U);
  check_equal(one[0].runs.size(), 4U);  // one a plane
  check_equal(one[0].runs[0].n_tiles, 5U);
  const std::vector<uint32_t> scattered{3, 5, 4};
  check_equal(layout.map_runs(1, 2, scattered, heaps)[0].runs.size(), 12U);
  check_equal(layout.unmap_runs(0, 1, 2, 3).size(), 4U);
}

void test_heaps_follow_the_budget() {
  const KvLayout layout({.n_planes = 16, .token_bytes = 2048, .slots = 8, .context = 262'144},
                        kNoLimit);
  check_equal(layout.bundle_bytes(), 4 * kMiB);
  const KvHeaps large = layout.heaps(kNoLimit);
  check_equal(large.n_bundles, 8U * 2048);
  check_equal(large.heap_bundles, 16U);  // 64 MiB
  const KvHeaps small = layout.heaps(11 * kMiB);
  check_equal(small.n_bundles, 2U);
  check_equal(small.n_heaps(), 1U);
  check_equal(layout.heaps(4 * kMiB - 1).n_bundles, 0U);
}

void test_bindings() {
  Bindings bindings(2);
  bindings.grow(4);
  const std::span<const uint32_t> first = bindings.bind(0, 3);
  check(std::vector(first.begin(), first.end()) == std::vector<uint32_t>{0, 1, 2});
  check_throws<std::logic_error>([&] { (void)bindings.bind(1, 2); }, "1 free");
  check_equal(bindings.n_blocks(1), 0U);
  bindings.unbind(0, 1);
  check_equal(bindings.n_bound(), 1U);
  check_equal(bindings.bind(1, 1)[0], 1U);  // freed last
  bindings.grow(3);
  check_equal(bindings.n_free(), 5U);
  bindings.check_integrity();
  check_throws<std::out_of_range>([&] { bindings.unbind(2); }, "");
}

void test_integrity_sees_a_bundle_bound_twice() {
  Bindings bindings(2);
  bindings.grow(4);
  const std::span<const uint32_t> bound = bindings.bind(0, 2);
  const_cast<uint32_t&>(bound[1]) = bound[0];
  check_throws<std::logic_error>([&] { bindings.check_integrity(); }, "bundle 0");
  const_cast<uint32_t&>(bound[1]) = 9;
  check_throws<std::logic_error>([&] { bindings.check_integrity(); }, "bundle 9");
}

}  // namespace
}  // namespace mtlqwen::testing

int main(int n_arguments, char** arguments) {
  using namespace mtlqwen::testing;
  return run({{"page is the largest that divides", test_page_is_the_largest_that_divides},
              {"layout limits", test_layout_limits},
              {"virtual tiles do not overlap", test_virtual_tiles_do_not_overlap},
              {"heap tiles do not overlap", test_heap_tiles_do_not_overlap},
              {"adjacent tiles are one run", test_adjacent_tiles_are_one_run},
              {"heaps follow the budget", test_heaps_follow_the_budget},
              {"bindings", test_bindings},
              {"integrity sees a bundle bound twice", test_integrity_sees_a_bundle_bound_twice}},
             n_arguments > 2 ? arguments[2] : "");
}
