// cache/: the pool of bundles, and the slots that hold them, each by itself.
#include <cstdint>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "cache/gdn_banks.hpp"
#include "check.hpp"
#include "kv_probe.hpp"

namespace mtlqwen::testing {
namespace {

std::string library_path;  // the program's first argument

constexpr uint64_t kHeap = 64 * kKiB * kKiB;

void test_bundles_are_counted() {
  Device device(library_path);
  BundlePool pool(device, {.n_pieces = 2, .piece_tiles = 1, .page_bytes = 16 * kKiB});
  check_throws<CapacityError>([&] { (void)pool.take(1); }, "got 0 free bundles of 0, want 1");
  pool.set_limit(BundlePool::kNoLimit, 6);
  const std::vector<uint32_t> first = pool.take(4);
  check(first == std::vector<uint32_t>{0, 1, 2, 3});
  check_throws<CapacityError>([&] { (void)pool.take(3); }, "got 2 free bundles of 6, want 3");
  pool.share(std::vector<uint32_t>{1, 2, 1});
  check_equal(pool.refs(1), 3U);
  pool.drop(first);
  check_equal(pool.n_used(), 2U);
  pool.check_integrity(std::vector<uint32_t>{0, 2, 1, 0, 0, 0});
  check_throws<std::logic_error>(
      [&] { pool.check_integrity(std::vector<uint32_t>{0, 1, 1, 0, 0, 0}); },
      "bundle 1: has 1 owners, but counts 2");
  pool.drop(std::vector<uint32_t>{1, 2, 1});
  check_equal(pool.n_free(), 6U);
  check_throws<std::logic_error>([&] { pool.set_limit(1 << 20, 6); }, "set twice");
  BundlePool none(device, {.page_bytes = 64 * kKiB});
  check_throws<CapacityError>([&] { none.set_limit(64 * kKiB - 1, 6); },
                              "got 65535 bytes, want 65536");
}

// What was dropped together is taken again in its order, before what is fresh.
void test_bundles_come_back_in_order() {
  Device device(library_path);
  BundlePool pool(device, {.page_bytes = 16 * kKiB});
  pool.set_limit(BundlePool::kNoLimit, 8);
  const std::vector<uint32_t> first = pool.take(3);
  const std::vector<uint32_t> second = pool.take(2);
  pool.drop(first);
  check(pool.take(4) == std::vector<uint32_t>{0, 1, 2, 5});
  pool.drop(std::vector<uint32_t>{1, 0});
  pool.drop(second);
  pool.trim();
  check(pool.take(3) == std::vector<uint32_t>{0, 1, 3});
}

void test_heaps_without_use_go() {
  Device device(library_path);
  const uint64_t before = device.allocated_bytes();
  BundlePool pool(device, {.piece_tiles = 128, .page_bytes = 256 * kKiB});  // two in a heap
  pool.set_limit(BundlePool::kNoLimit, 7);
  const std::vector<uint32_t> all = pool.take(7);
  check_equal(pool.heap_bytes(), 3 * kHeap + kHeap / 2);
  const auto drop = [&](std::vector<uint32_t> bundles) {
    pool.drop(bundles);
    pool.trim();
    return pool.heap_bytes();
  };
  check_equal(drop({0, 1}), 3 * kHeap + kHeap / 2);  // the first stays
  check_equal(drop({2}), 3 * kHeap + kHeap / 2);
  check_equal(drop({3}), 2 * kHeap + kHeap / 2);  // in the middle
  check_equal(device.allocated_bytes(), before + pool.heap_bytes());
  pool.check_integrity(std::vector<uint32_t>{0, 0, 0, 0, 1, 1, 1});
  check(pool.take(3) == std::vector<uint32_t>{0, 1, 2});  // made again
  pool.check_integrity(std::vector<uint32_t>{1, 1, 1, 0, 1, 1, 1});
  check_equal(drop({4, 5, 6, 2, 1, 0}), kHeap);
}

void test_data_stands_where_it_was_put() {
  KvMemory memory(library_path);
  memory.kv.reserve(0, 130, 0);
  memory.kv.reserve(2, 1, 0);
  check_equal(memory.kv.bundles_bound(), 3U);
  check_equal(memory.kv.reserved_tokens(0), 256U);
  float tag = 1.0F;
  const std::pair<uint32_t, uint32_t> places[] = {{0, 0},   {0, 127}, {0, 128},
                                                  {0, 255}, {2, 0},   {2, 127}};
  for (uint32_t plane = 0; plane < 4; ++plane) {
    for (const auto& [slot, position] : places) memory.probe.write(plane, slot, position, tag++);
  }
  memory.kv.reserve(0, 1000, 256);  // growing moves nothing
  tag = 1.0F;
  for (uint32_t plane = 0; plane < 4; ++plane) {
    for (const auto& [slot, position] : places) {
      check(memory.probe.holds(plane, slot, position, tag++));
    }
  }
  memory.check_integrity();
}

void test_blocks_of_every_size() {
  for (const uint32_t block_tokens : {64U, 128U, 256U}) {
    KvShape shape = kSmall;
    shape.token_bytes = 256;
    shape.block_tokens = block_tokens;
    KvMemory memory(library_path, shape);
    memory.kv.reserve(1, block_tokens + 1, 0);
    check_equal(memory.kv.reserved_tokens(1), 2 * block_tokens);
    check_equal(memory.kv.bundles_bound(), 2U);
    check_equal(memory.kv.bound_bytes(), 2 * 4 * block_tokens * shape.token_bytes);
    const uint32_t last = 2 * block_tokens - 1;
    for (uint32_t plane = 0; plane < 4; ++plane) {
      memory.probe.write(plane, 1, last, 1.0F + static_cast<float>(plane));
    }
    for (uint32_t plane = 0; plane < 4; ++plane) {
      check(memory.probe.holds(plane, 1, last, 1.0F + static_cast<float>(plane)));
    }
    memory.check_integrity();
  }
}

void test_released_memory_serves_another_slot() {
  KvMemory memory(library_path, kSmall, 2 * kSmallBundle);
  check_equal(memory.pool.max_bundles(), 2U);
  for (int i = 0; i < 4; ++i) {
    for (uint32_t slot = 0; slot < 3; ++slot) {
      memory.kv.reserve(slot, 256, 0);
      const auto tag = static_cast<float>(10 * i) + static_cast<float>(slot);
      for (uint32_t plane = 0; plane < 4; ++plane) {
        memory.probe.write(plane, slot, 200, tag);
        check(memory.probe.holds(plane, slot, 200, tag));
      }
      memory.kv.release(slot);
      check_equal(memory.kv.bundles_bound(), 0U);
      memory.check_integrity();
    }
  }
  check_equal(memory.pool.heap_bytes(), 2 * kSmallBundle);
}

void test_full_pool_changes_nothing() {
  KvMemory memory(library_path, kSmall, 5 * kSmallBundle + 1);
  KvPool& kv = memory.kv;
  kv.reserve(0, 384, 0);
  memory.probe.write(3, 0, 300, 7.0F);
  const uint64_t allocated = memory.device.allocated_bytes();
  check_throws<CapacityError>([&] { kv.reserve(1, 300, 0); }, "got 2 free bundles of 5, want 3");
  check_throws<CapacityError>([&] { kv.reserve(0, 768, 384); }, "got 2 free bundles of 5, want 3");
  check_throws<CapacityError>([&] { kv.reserve(0, 1025, 0); },
                              "got 1025 tokens, want at most 1024");
  check_equal(kv.reserved_tokens(0), 384U);
  check_equal(kv.reserved_tokens(1), 0U);
  check_equal(memory.pool.n_free(), 2U);
  check_equal(memory.device.allocated_bytes(), allocated);
  check(memory.probe.holds(3, 0, 300, 7.0F));
  kv.reserve(1, 256, 0);
  memory.check_integrity();
  check_throws<std::out_of_range>([&] { kv.reserve(3, 1, 0); }, "slot 3");
}

void test_release_takes_the_mappings_away() {
  KvMemory memory(library_path);
  if (!memory.device.is_software()) return;  // only there GPU addresses are the process's
  memory.kv.reserve(1, 200, 0);
  memory.settle();
  for (uint32_t plane = 0; plane < 4; ++plane) {
    const uint64_t slot_1 = memory.probe.address(plane, 1, 0);
    check(is_readable(slot_1 + 2 * 16 * kKiB - 1));
    check(!is_readable(slot_1 + 2 * 16 * kKiB));
    check(!is_readable(slot_1 - 1));
  }
  memory.kv.release(1);
  memory.settle();
  for (uint32_t plane = 0; plane < 4; ++plane) {
    const uint64_t slot_1 = memory.probe.address(plane, 1, 0);
    check(!is_readable(slot_1));
    check(!is_readable(slot_1 + 16 * kKiB));
  }
}

// Slots have addresses and no memory; banks have both.
void test_a_model_without_attention_layers() {
  KvMemory memory(library_path, {.n_planes = 0, .token_bytes = 128, .slots = 2, .context = 1000});
  check_equal(memory.pool.bundle_bytes(), 64 * kKiB);
  memory.kv.reserve(0, 1000, 0);
  memory.kv.adopt(1, {});
  check_equal(memory.kv.missing_bundles(1, 1000, 500), 0U);
  check_equal(memory.kv.blocks_of(1000), 0U);
  check_equal(memory.kv.reserved_tokens(1), 1024U);
  check_equal(memory.kv.bundles_bound(), 0U);
  check(memory.kv.pending_copies().empty());
  GdnBanks banks(memory.device, memory.pool, 20'000, 4, 0);
  check_equal(banks.bank_bundles(), 2U);
  check_equal(banks.take(), 0U);
  check_equal(memory.pool.n_used(), 2U);
  memory.settle();
  memory.kv.release(0);
}

void test_open_and_close() {
  Device device(library_path);
  const uint64_t before = device.allocated_bytes();
  for (int i = 0; i < 20; ++i) {
    BundlePool pool(device, bundle_shape(kSmall));
    pool.set_limit(BundlePool::kNoLimit, 40);
    KvPool kv(device, pool, kSmall);
    GdnBanks banks(device, pool, 4096, 2, 0);
    kv.reserve(1, 700, 0);
    kv.reserve(2, 100, 0);
    (void)banks.take();
    kv.map_window(kv.bundles(1));
    kv.release(2);
  }
  check_equal(device.allocated_bytes(), before);
}

// An engine closes by stopping the pass first: the memory must come back all the same, at once.
void test_close_while_stopped() {
  Device device(library_path);
  const uint64_t before = device.allocated_bytes();
  {
    BundlePool pool(device, bundle_shape(kSmall));
    pool.set_limit(BundlePool::kNoLimit, 40);
    KvPool kv(device, pool, kSmall);
    GdnBanks banks(device, pool, 4096, 2, 0);
    kv.reserve(1, 700, 0);
    (void)banks.take();
    device.request_abort();
  }
  check(!device.lost());
  check_equal(device.allocated_bytes(), before);
}

}  // namespace
}  // namespace mtlqwen::testing

int main(int n_arguments, char** arguments) {
  using namespace mtlqwen::testing;
  if (n_arguments < 2) return 2;
  library_path = arguments[1];
  return run({{"bundles are counted", test_bundles_are_counted},
              {"bundles come back in order", test_bundles_come_back_in_order},
              {"heaps without use go", test_heaps_without_use_go},
              {"data stands where it was put", test_data_stands_where_it_was_put},
              {"blocks of every size", test_blocks_of_every_size},
              {"released memory serves another slot", test_released_memory_serves_another_slot},
              {"full pool changes nothing", test_full_pool_changes_nothing},
              {"release takes the mappings away", test_release_takes_the_mappings_away},
              {"a model without attention layers", test_a_model_without_attention_layers},
              {"open and close", test_open_and_close},
              {"close while stopped", test_close_while_stopped}},
             n_arguments > 2 ? arguments[2] : "");
}
