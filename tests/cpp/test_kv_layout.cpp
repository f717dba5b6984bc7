// cache/: the arithmetic of tiles and bundles, without a device.
#include <cstdint>
#include <set>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "cache/bundle_layout.hpp"
#include "cache/kv_layout.hpp"
#include "check.hpp"

namespace mtlqwen::testing {
namespace {

constexpr uint64_t kKiB = 1024;
constexpr uint64_t kMiB = 1024 * kKiB;
constexpr uint64_t kNoLimit = 1ULL << 40;

// 2 attention layers, 1 kv head of 64: a block is one 16 KiB tile of each of 4 planes.
constexpr KvShape kSmall{.n_planes = 4, .token_bytes = 128, .slots = 3, .context = 1000};

BundleHeaps heaps_of(const KvShape& shape, uint32_t n_bundles, uint32_t heap_bundles) {
  return {.shape = bundle_shape(shape), .n_bundles = n_bundles, .heap_bundles = heap_bundles};
}

std::vector<HeapMapping> map(const KvLayout& layout, const BundleHeaps& heaps, uint64_t first_block,
                             const std::vector<uint32_t>& bundles) {
  MappingPlan plan(heaps);
  layout.map(plan, first_block, bundles);
  return plan.mappings();
}

void test_page_is_the_largest_that_divides() {
  const auto page = [](uint64_t token_bytes, uint32_t block_tokens = 128) {
    const BundleShape bundle =
        bundle_shape({.n_planes = 2, .token_bytes = token_bytes, .block_tokens = block_tokens});
    check_equal(bundle.bytes(), 2 * token_bytes * block_tokens);
    return std::pair(bundle.page_bytes / kKiB, bundle.piece_tiles);
  };
  using Page = std::pair<uint64_t, uint64_t>;
  check(page(4 * 256 * 2) == Page(256, 1));  // 4B, 9B and 27B
  check(page(2 * 256 * 2) == Page(64, 2));   // 0.8B, 2B
  check(page(64 * 2) == Page(16, 1));
  check(page(3 * 64 * 2) == Page(16, 3));
  check(page(8 * 256 * 2) == Page(256, 2));
  check(page(4 * 256 * 2, 64) == Page(64, 2));
  check(page(4 * 256 * 2, 256) == Page(256, 2));
  check(page(32 * 2, 256) == Page(16, 1));
  check_throws<ModelError>([&] { (void)page(32 * 2); }, "got 8192 bytes");
  check_throws<ModelError>([&] { (void)page(64 * 2, 64); }, "raise block_tokens");
  check_throws<ModelError>([&] { (void)page(UINT64_MAX / 2); }, "whole pages");
  const BundleShape none = bundle_shape({.n_planes = 0, .token_bytes = 64});
  check_equal(none.bytes(), 64 * kKiB);
}

void test_layout_limits() {
  const auto layout = [](uint32_t slots, uint32_t context) {
    return KvLayout({.n_planes = 2, .token_bytes = 2048, .slots = slots, .context = context},
                    1ULL << 30);
  };
  const KvLayout most = layout(1, 262'016);  // the slot, the window, a staging block
  check_equal(most.slots_bytes(), 262'016 * 2048ULL);
  check_equal(most.plane_bytes(), (1ULL << 30) - 256 * kKiB);
  check_throws<CapacityError>([&] { (void)layout(2, 262'144); }, "2 slots of 262144 tokens");
  check_throws<CapacityError>([&] { (void)layout(1, UINT32_MAX); }, "4294967295");
}

// Every block of every plane owns its tiles alone, and no buffer is larger than the device allows.
void check_virtual_tiles(const KvShape& shape, uint64_t limit) {
  const KvLayout layout(shape, limit);
  const uint64_t n_blocks = layout.window_block() + layout.slot_blocks();
  std::set<std::pair<uint32_t, uint64_t>> used;
  for (uint32_t plane = 0; plane < layout.n_planes(); ++plane) {
    const uint32_t buffer = layout.buffer_of(plane);
    check(layout.buffer_bytes(buffer) <= limit);
    for (uint64_t block = 0; block < n_blocks; ++block) {
      const uint64_t offset = layout.block_offset(plane, block);
      check_equal(offset,
                  layout.plane_offset(plane) + block * shape.block_tokens * shape.token_bytes);
      for (uint64_t i = 0; i < layout.block_tiles(); ++i) {
        check(used.insert({buffer, offset / layout.page_bytes() + i}).second);
        check(offset + (i + 1) * layout.page_bytes() <= layout.buffer_bytes(buffer));
      }
    }
  }
}

void test_virtual_tiles_do_not_overlap() {
  for (const uint64_t limit : {kNoLimit, 2 * kMiB, 1200 * kKiB, 600 * kKiB}) {
    check_virtual_tiles(kSmall, limit);
  }
  for (const uint32_t block_tokens : {64U, 128U, 256U}) {
    KvShape shape{.n_planes = 6, .token_bytes = 256, .slots = 5, .context = 200};
    shape.block_tokens = block_tokens;
    check_virtual_tiles(shape, kNoLimit);
  }
}

void test_blocks_of_slots_and_behind_them() {
  const KvLayout layout(kSmall, kNoLimit);
  check_equal(layout.slot_tokens(), 1024U);
  check_equal(layout.block_of(2, 7), 23U);
  check_equal(layout.staging_block(0), 24U);
  check_equal(layout.staging_block(2), 26U);
  check_equal(layout.window_block(), 27U);
  check_equal(layout.plane_bytes(), 35 * 16 * kKiB);
  KvShape narrow = kSmall;  // fewer blocks than slots
  narrow.context = 128;
  narrow.slots = 9;
  const KvLayout one(narrow, kNoLimit);
  check_equal(one.staging_block(8), 17U);
  check_equal(one.window_block(), 18U);
  check_equal(one.plane_bytes(), 19 * 16 * kKiB);
}

// Two mapped tiles never share a heap tile, and all of a heap's tiles are used.
void test_heap_tiles_do_not_overlap() {
  const KvLayout layout(kSmall, 1200 * kKiB);
  const BundleHeaps heaps = heaps_of(kSmall, 24, 7);  // the last heap holds 3
  check_equal(heaps.n_heaps(), 4U);
  std::set<std::pair<uint32_t, uint64_t>> physical;
  uint64_t n_tiles = 0;
  for (uint32_t slot = 0; slot < 3; ++slot) {
    std::vector<uint32_t> bundles(8);
    for (uint32_t i = 0; i < 8; ++i) bundles[i] = (5 * (slot * 8 + i)) % 24;
    for (const HeapMapping& mapping : map(layout, heaps, layout.block_of(slot, 0), bundles)) {
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
  const BundleHeaps heaps = heaps_of(kSmall, 24, 24);
  const uint64_t block = layout.block_of(1, 2);
  const std::vector<HeapMapping> one = map(layout, heaps, block, {3, 4, 5, 6, 7});
  check_equal(one.size(), 1U);
  check_equal(one[0].runs.size(), 4U);  // one a plane
  check_equal(one[0].runs[0].n_tiles, 5U);
  check_equal(map(layout, heaps, block, {3, 5, 4})[0].runs.size(), 12U);
  check_equal(layout.unmap_runs(0, block, 3).size(), 4U);
}

void test_planes_in_several_buffers() {
  const KvLayout split(kSmall, 1200 * kKiB);
  check_equal(split.n_buffers(), 2U);
  check_equal(map(split, heaps_of(kSmall, 24, 24), 0, {0, 1}).size(), 2U);
  check_equal(split.unmap_runs(1, 3, 2).size(), 2U);
}

void test_heaps_follow_the_budget() {
  const KvShape shape{.n_planes = 16, .token_bytes = 2048, .slots = 8, .context = 262'144};
  const BundleShape bundle = bundle_shape(shape);
  check_equal(bundle.bytes(), 4 * kMiB);
  const BundleHeaps large = plan_heaps(bundle, kNoLimit, 8 * 2048);
  check_equal(large.n_bundles, 8U * 2048);
  check_equal(large.heap_bundles, 16U);  // 64 MiB
  const BundleHeaps small = plan_heaps(bundle, 11 * kMiB, 8 * 2048);
  check_equal(small.n_bundles, 2U);
  check_equal(small.n_heaps(), 1U);
  check_equal(plan_heaps(bundle, 4 * kMiB - 1, 8).n_bundles, 0U);
  check_equal(plan_heaps(bundle, kNoLimit, UINT64_MAX).n_bundles, kNoLimit / (4 * kMiB));
}

}  // namespace
}  // namespace mtlqwen::testing

int main(int n_arguments, char** arguments) {
  using namespace mtlqwen::testing;
  return run({{"page is the largest that divides", test_page_is_the_largest_that_divides},
              {"layout limits", test_layout_limits},
              {"virtual tiles do not overlap", test_virtual_tiles_do_not_overlap},
              {"blocks of slots and behind them", test_blocks_of_slots_and_behind_them},
              {"heap tiles do not overlap", test_heap_tiles_do_not_overlap},
              {"adjacent tiles are one run", test_adjacent_tiles_are_one_run},
              {"planes in several buffers", test_planes_in_several_buffers},
              {"heaps follow the budget", test_heaps_follow_the_budget}},
             n_arguments > 2 ? arguments[2] : "");
}
