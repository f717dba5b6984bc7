// cache/: bundles with several owners: adopted, copied on write, seen through the window.
#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "check.hpp"
#include "kv_probe.hpp"

namespace mtlqwen::testing {
namespace {

std::string library_path;  // the program's first argument

// Slots with a pattern in each plane at some positions, and one more owner of some of their bundles.
struct Shared : KvMemory {
  std::vector<uint32_t> kept;  // as a checkpoint would hold them

  explicit Shared(const KvShape& shape = kSmall) : KvMemory(library_path, shape) {}

  void write(uint32_t slot, uint32_t position, float tag) {
    for (uint32_t plane = 0; plane < 4; ++plane) {
      probe.write(plane, slot, position, tag + static_cast<float>(plane));
    }
  }
  [[nodiscard]] bool holds(uint32_t slot, uint32_t position, float tag) {
    for (uint32_t plane = 0; plane < 4; ++plane) {
      if (!probe.holds(plane, slot, position, tag + static_cast<float>(plane))) return false;
    }
    return true;
  }
  void keep(uint32_t slot) {
    kept = copy_of(kv.bundles(slot));
    pool.share(kept);
  }
  void check_all() const { check_integrity(kept); }
  // A pass that makes the pending copies, and commits.
  void commit() {
    probe.run(kv.pending_copies());
    kv.copies_done();
  }
};

void test_an_adopted_prefix_is_read_where_it_was_written() {
  Shared memory;
  memory.kv.reserve(0, 256, 0);
  memory.write(0, 5, 1.0F);
  memory.write(0, 250, 10.0F);
  memory.keep(0);
  memory.kv.release(0);
  check_equal(memory.pool.n_used(), 2U);
  memory.kv.adopt(2, memory.kept);
  memory.kv.adopt(1, memory.kept);
  check_equal(memory.pool.refs(memory.kept[1]), 3U);
  check_equal(memory.kv.bundles_bound(), 2U);
  for (const uint32_t slot : {1, 2}) {
    check(memory.holds(slot, 5, 1.0F));
    check(memory.holds(slot, 250, 10.0F));
    check_equal(memory.kv.missing_bundles(slot, 300, 256), 1U);  // whole blocks are never copied
    memory.kv.reserve(slot, 300, 256);
    memory.write(slot, 256, 20.0F * static_cast<float>(slot));
  }
  check(memory.kv.pending_copies().empty());
  check(memory.holds(1, 256, 20.0F));
  check(memory.holds(2, 256, 40.0F));
  memory.check_all();
  memory.kv.release(1);
  memory.kv.release(2);
  check_equal(memory.pool.n_used(), 2U);
  memory.check_all();
}

void test_adopting_what_cannot_be_changes_nothing() {
  Shared memory;
  memory.kv.reserve(0, 300, 0);
  memory.keep(0);
  check_throws<std::logic_error>([&] { memory.kv.adopt(0, memory.kept); }, "holds 3");
  const std::vector<uint32_t> many(9, memory.kept[0]);
  check_throws<std::logic_error>([&] { memory.kv.adopt(1, many); }, "has room for 8");
  check_throws<std::out_of_range>([&] { memory.kv.adopt(3, memory.kept); }, "slot 3");
  memory.check_all();
}

// A slot goes on inside of a block that others keep: both see their own from there on.
void test_a_shared_block_is_copied_before_it_is_written() {
  Shared memory;
  memory.kv.reserve(0, 200, 0);
  memory.write(0, 130, 1.0F);
  memory.write(0, 199, 10.0F);
  memory.keep(0);
  check_equal(memory.kv.missing_bundles(0, 201, 200), 1U);
  check_equal(memory.kv.missing_bundles(0, 200, 200), 0U);  // nothing is written
  memory.kv.reserve(0, 201, 200);
  check_equal(memory.kv.bundles(0)[0], memory.kept[0]);
  check(memory.kv.bundles(0)[1] != memory.kept[1]);
  check_equal(memory.pool.refs(memory.kept[1]), 2U);  // the copy's, and the checkpoint's
  const std::vector<BlockCopy> copies = memory.kv.pending_copies();
  check_equal(copies.size(), 4U);
  check_equal(copies[0].bytes, 72 * kSmall.token_bytes);
  memory.check_all();
  memory.commit();
  check(memory.kv.pending_copies().empty());
  check_equal(memory.pool.refs(memory.kept[1]), 1U);
  memory.write(0, 200, 20.0F);
  memory.write(0, 130, 30.0F);  // in its own copy
  memory.kv.adopt(1, memory.kept);
  check(memory.holds(1, 130, 1.0F));
  check(memory.holds(1, 199, 10.0F));
  check(memory.holds(0, 199, 10.0F));
  check(memory.holds(0, 130, 30.0F));
  check(memory.holds(0, 200, 20.0F));
  check_equal(memory.kv.missing_bundles(0, 202, 201), 0U);  // its own now
  memory.check_all();
}

// What a stopped pass did not copy, the next one copies.
void test_a_copy_stays_pending_over_a_stopped_pass() {
  Shared memory;
  memory.kv.reserve(0, 200, 0);
  memory.write(0, 150, 1.0F);
  memory.keep(0);
  memory.kv.reserve(0, 230, 200);
  memory.device.request_abort();
  check_throws<Aborted>([&] { memory.probe.run(memory.kv.pending_copies()); }, "stopped");
  memory.device.clear_abort();
  check_equal(memory.kv.missing_bundles(0, 230, 200), 0U);
  memory.kv.reserve(0, 230, 200);
  check_equal(memory.kv.pending_copies().size(), 4U);
  memory.check_all();
  memory.commit();
  check(memory.holds(0, 150, 1.0F));
  memory.check_all();
}

void test_two_slots_copy_one_block_in_one_pass() {
  Shared memory;
  memory.kv.reserve(0, 100, 0);
  memory.write(0, 99, 1.0F);
  memory.keep(0);
  memory.kv.adopt(1, memory.kept);
  memory.kv.adopt(2, memory.kept);
  memory.pool.drop(memory.kept);  // evicted meanwhile
  memory.kept.clear();
  for (const uint32_t slot : {0, 1, 2}) memory.kv.reserve(slot, 101, 100);
  check_equal(memory.kv.pending_copies().size(), 12U);
  check_equal(memory.pool.n_used(), 4U);
  memory.check_all();
  memory.commit();
  check_equal(memory.pool.n_used(), 3U);
  for (const uint32_t slot : {0, 1, 2}) {
    memory.write(slot, 100, 10.0F * static_cast<float>(slot + 1));
  }
  for (const uint32_t slot : {0, 1, 2}) {
    check(memory.holds(slot, 99, 1.0F));
    check(memory.holds(slot, 100, 10.0F * static_cast<float>(slot + 1)));
  }
  memory.check_all();
}

void test_a_released_slot_copies_nothing() {
  Shared memory;
  memory.kv.reserve(0, 200, 0);
  memory.keep(0);
  memory.kv.reserve(0, 300, 200);
  memory.kv.release(0);
  check(memory.kv.pending_copies().empty());
  check_equal(memory.pool.n_used(), 2U);
  memory.check_all();
  if (!memory.device.is_software()) return;
  memory.settle();
  const uint64_t staging = memory.kv.layout().staging_block(0) * 16 * kKiB;
  check(!is_readable(memory.kv.plane_address(0) + staging));
}

void test_a_full_pool_copies_nothing() {
  KvMemory memory(library_path, kSmall, 3 * kSmallBundle);
  memory.kv.reserve(0, 300, 0);
  const std::vector<uint32_t> kept = copy_of(memory.kv.bundles(0));
  memory.pool.share(kept);
  check_throws<CapacityError>([&] { memory.kv.reserve(0, 301, 300); }, "got 0 free bundles of 3");
  check(memory.kv.pending_copies().empty());
  check(copy_of(memory.kv.bundles(0)) == kept);
  memory.check_integrity(kept);
  memory.pool.drop(kept);
  memory.kv.reserve(0, 301, 300);  // nobody else keeps the block
  check(copy_of(memory.kv.bundles(0)) == kept);
}

// One block a slot: staging blocks of many slots.
void test_more_slots_than_blocks() {
  Shared memory({.n_planes = 4, .token_bytes = 256, .slots = 5, .context = 60, .block_tokens = 64});
  memory.kv.reserve(4, 40, 0);
  memory.write(4, 39, 1.0F);
  memory.keep(4);
  for (uint32_t slot = 0; slot < 4; ++slot) memory.kv.adopt(slot, memory.kept);
  for (uint32_t slot = 0; slot < 5; ++slot) memory.kv.reserve(slot, 41, 40);
  memory.check_all();
  memory.commit();
  for (uint32_t slot = 0; slot < 5; ++slot) check(memory.holds(slot, 39, 1.0F));
  check_equal(memory.pool.n_used(), 6U);
  memory.check_all();
}

void test_the_window_reads_and_writes_bundles_of_no_slot() {
  Shared memory;
  memory.kv.reserve(0, 200, 0);
  memory.write(0, 140, 1.0F);
  memory.keep(0);
  memory.kv.release(0);
  memory.kv.map_window(memory.kept);
  for (uint32_t plane = 0; plane < 4; ++plane) {
    check(memory.probe.window_holds(plane, 140, 1.0F + static_cast<float>(plane)));
  }
  check_throws<std::logic_error>([&] { memory.kv.map_window(memory.kept); }, "holds 2");
  memory.check_all();
  memory.kv.unmap_window();
  const std::vector<uint32_t> fresh = memory.pool.take(2);
  memory.kv.map_window(fresh);
  for (uint32_t plane = 0; plane < 4; ++plane) memory.probe.write_window(plane, 140, 7.0F);
  memory.kv.unmap_window();
  memory.kv.unmap_window();
  memory.kv.adopt(1, fresh);
  memory.kv.adopt(2, memory.kept);
  for (uint32_t plane = 0; plane < 4; ++plane) check(memory.probe.holds(plane, 1, 140, 7.0F));
  check(memory.holds(2, 140, 1.0F));
  memory.pool.drop(fresh);
  memory.check_all();
  if (!memory.device.is_software()) return;
  memory.settle();
  check(!is_readable(memory.probe.window_address(0, 0)));
}

// A heap may only go when nothing is mapped from it: nothing of what was shared is left behind.
void test_what_was_shared_leaves_no_mapping() {
  Shared memory;
  for (int i = 0; i < 3; ++i) {
    memory.kv.reserve(0, 200, 0);
    memory.keep(0);
    memory.kv.adopt(1, memory.kept);
    memory.kv.reserve(1, 201, 200);
    memory.commit();
    memory.kv.map_window(memory.kept);
    memory.kv.unmap_window();
    memory.pool.drop(memory.kept);
    memory.kept.clear();
    memory.kv.release(0);
    memory.kv.release(1);
    memory.check_all();
    if (!memory.device.is_software()) continue;
    memory.settle();
    const KvLayout& layout = memory.kv.layout();
    for (uint64_t block = 0; block < layout.window_block() + layout.slot_blocks(); ++block) {
      check(!is_readable(memory.kv.plane_address(3) + block * 16 * kKiB));
    }
  }
}

}  // namespace
}  // namespace mtlqwen::testing

int main(int n_arguments, char** arguments) {
  using namespace mtlqwen::testing;
  if (n_arguments < 2) return 2;
  library_path = arguments[1];
  return run(
      {{"an adopted prefix is read where it was written",
        test_an_adopted_prefix_is_read_where_it_was_written},
       {"adopting what cannot be changes nothing", test_adopting_what_cannot_be_changes_nothing},
       {"a shared block is copied before it is written",
        test_a_shared_block_is_copied_before_it_is_written},
       {"a copy stays pending over a stopped pass", test_a_copy_stays_pending_over_a_stopped_pass},
       {"two slots copy one block in one pass", test_two_slots_copy_one_block_in_one_pass},
       {"a released slot copies nothing", test_a_released_slot_copies_nothing},
       {"a full pool copies nothing", test_a_full_pool_copies_nothing},
       {"more slots than blocks", test_more_slots_than_blocks},
       {"the window reads and writes bundles of no slot",
        test_the_window_reads_and_writes_bundles_of_no_slot},
       {"what was shared leaves no mapping", test_what_was_shared_leaves_no_mapping}},
      n_arguments > 2 ? arguments[2] : "");
}
