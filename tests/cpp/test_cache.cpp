// cache/: the KV pool and the GDN banks on the device.
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "cache/gdn_banks.hpp"
#include "cache/kv_layout.hpp"
#include "cache/kv_pool.hpp"
#include "check.hpp"
#include "gpu/commands.hpp"
#include "row_copier.hpp"

namespace mtlqwen::testing {
namespace {

constexpr uint64_t kKiB = 1024;
constexpr uint64_t kNoLimit = 1ULL << 40;

std::string library_path;  // the program's first argument

// 2 attention layers, 1 kv head of 64: a block is one 16 KiB tile of each of 4 planes.
constexpr KvShape kSmall{.n_planes = 4, .token_bytes = 128, .slots = 3, .context = 1000};

std::vector<float> ramp(size_t n, float first) {
  std::vector<float> values(n);
  for (size_t i = 0; i < n; ++i) values[i] = first + static_cast<float>(i);
  return values;
}

// A pattern of its own for each plane, slot and position, moved by kernels.
class KvProbe {
 public:
  KvProbe(Device& device, const KvPool& pool) : pool_(pool), commands_(device), copier_(device) {}

  void write(uint32_t plane, uint32_t slot, uint32_t position, float tag) {
    copier_.store(commands_, address(plane, slot, position), pattern(tag));
  }
  [[nodiscard]] bool holds(uint32_t plane, uint32_t slot, uint32_t position, float tag) {
    return copier_.load(commands_, address(plane, slot, position), kFloats) == pattern(tag);
  }

 private:
  static constexpr size_t kFloats = 32;  // one token of kSmall

  [[nodiscard]] uint64_t address(uint32_t plane, uint32_t slot, uint32_t position) const {
    const uint64_t token = uint64_t{slot} * pool_.slot_tokens() + position;
    return pool_.plane_address(plane) + token * kSmall.token_bytes;
  }
  static std::vector<float> pattern(float tag) { return ramp(kFloats, 1000.0F * tag); }

  const KvPool& pool_;
  Commands commands_;
  RowCopier copier_;
};

void test_data_stands_where_it_was_put() {
  Device device(library_path);
  KvPool pool(device, kSmall, kNoLimit);
  KvProbe probe(device, pool);
  pool.reserve(0, 130);
  pool.reserve(2, 1);
  check_equal(pool.bundles_bound(), 3U);
  check_equal(pool.reserved_tokens(0), 256U);
  float tag = 1.0F;
  const std::pair<uint32_t, uint32_t> places[] = {{0, 0},   {0, 127}, {0, 128},
                                                  {0, 255}, {2, 0},   {2, 127}};
  for (uint32_t plane = 0; plane < 4; ++plane) {
    for (const auto& [slot, position] : places) probe.write(plane, slot, position, tag++);
  }
  pool.reserve(0, 1000);  // growing moves nothing
  tag = 1.0F;
  for (uint32_t plane = 0; plane < 4; ++plane) {
    for (const auto& [slot, position] : places) check(probe.holds(plane, slot, position, tag++));
  }
  pool.check_integrity();
}

void test_released_memory_serves_another_slot() {
  Device device(library_path);
  KvPool pool(device, kSmall, 2 * 64 * kKiB);  // two bundles
  check_equal(pool.max_bundles(), 2U);
  KvProbe probe(device, pool);
  for (int i = 0; i < 4; ++i) {
    for (uint32_t slot = 0; slot < 3; ++slot) {
      pool.reserve(slot, 256);
      const auto tag = static_cast<float>(10 * i) + static_cast<float>(slot);
      for (uint32_t plane = 0; plane < 4; ++plane) {
        probe.write(plane, slot, 200, tag);
        check(probe.holds(plane, slot, 200, tag));
      }
      pool.release(slot);
      check_equal(pool.bundles_bound(), 0U);
      pool.check_integrity();
    }
  }
  check_equal(pool.heap_bytes(), 2 * 64 * kKiB);
}

void test_full_pool_changes_nothing() {
  Device device(library_path);
  KvPool pool(device, kSmall, 5 * 64 * kKiB + 1);
  KvProbe probe(device, pool);
  pool.reserve(0, 384);
  probe.write(3, 0, 300, 7.0F);
  const uint64_t allocated = device.allocated_bytes();
  check_throws<CapacityError>([&] { pool.reserve(1, 300); }, "got 2 free blocks of 5, want 3");
  check_throws<CapacityError>([&] { pool.reserve(0, 768); }, "got 2 free blocks of 5, want 3");
  check_throws<CapacityError>([&] { pool.reserve(0, 1025); }, "got 1025 tokens, want at most 1024");
  check_equal(pool.reserved_tokens(0), 384U);
  check_equal(pool.reserved_tokens(1), 0U);
  check_equal(pool.bundles_free(), 2U);
  check_equal(device.allocated_bytes(), allocated);
  check(probe.holds(3, 0, 300, 7.0F));
  pool.reserve(1, 256);
  pool.check_integrity();
  check_throws<std::out_of_range>([&] { pool.reserve(3, 1); }, "slot 3");
  check_throws<CapacityError>([&] { const KvPool none(device, kSmall, 64 * kKiB - 1); },
                              "got 65535 bytes, want 65536");
}

void test_planes_in_several_buffers() {
  Device device(library_path);
  KvShape shape = kSmall;
  shape.slots = 2;
  KvPool pool(device, shape, kNoLimit);
  check_equal(pool.layout().n_buffers(), 1U);  // by the device's own limit
  const KvLayout split(shape, 600 * kKiB);     // the arithmetic for a device of smaller buffers
  check_equal(split.n_buffers(), 2U);
  check_equal(split.map_runs(0, 0, std::vector<uint32_t>{0, 1}, split.heaps(kNoLimit)).size(), 2U);
  check_equal(split.unmap_runs(1, 1, 0, 2).size(), 2U);
  pool.reserve(1, 128);
  check_equal(pool.bound_bytes(), 64 * kKiB);
}

// Whether a byte can be read: asked of the operating system, which answers where a load would crash.
bool is_readable(uint64_t address) {
  int ends[2];
  check_equal(::pipe(ends), 0);
  const bool readable = ::write(ends[1], reinterpret_cast<const void*>(address), 1) == 1;
  ::close(ends[0]);
  ::close(ends[1]);
  return readable;
}

void test_release_takes_the_mappings_away() {
  Device device(library_path);
  if (!device.is_software()) return;  // only there GPU addresses are addresses of the process
  Commands commands(device);
  KvPool pool(device, kSmall, kNoLimit);
  const auto settle = [&] {  // queued mappings have happened once a later round is done
    commands.begin();
    commands.commit_and_wait();
  };
  pool.reserve(1, 200);
  settle();
  for (uint32_t plane = 0; plane < 4; ++plane) {
    const uint64_t slot_1 = pool.plane_address(plane) + uint64_t{pool.slot_tokens()} * 128;
    check(is_readable(slot_1 + 2 * 16 * kKiB - 1));
    check(!is_readable(slot_1 + 2 * 16 * kKiB));
    check(!is_readable(slot_1 - 1));
  }
  pool.release(1);
  settle();
  for (uint32_t plane = 0; plane < 4; ++plane) {
    const uint64_t slot_1 = pool.plane_address(plane) + uint64_t{pool.slot_tokens()} * 128;
    check(!is_readable(slot_1));
    check(!is_readable(slot_1 + 16 * kKiB));
  }
}

// Random reserves and releases against a model; each slot's tags must survive all others' changes.
void test_random_schedule() {
  Device device(library_path);
  KvPool pool(device, kSmall, 11 * 64 * kKiB);
  KvProbe probe(device, pool);
  std::mt19937 random(1);                       // any fixed seed
  std::map<uint32_t, std::vector<float>> tags;  // slot -> tag of each block
  float next_tag = 1.0F;
  for (int i = 0; i < 300; ++i) {
    const auto slot = static_cast<uint32_t>(random() % 3);
    if (random() % 4 == 0) {
      pool.release(slot);
      tags[slot].clear();
    } else {
      const auto n_tokens = static_cast<uint32_t>(random() % 1025);
      const uint64_t n_blocks =
          std::max<uint64_t>(ceil_div(n_tokens, kBlockTokens), tags[slot].size());
      const bool fits = n_blocks - tags[slot].size() <= pool.bundles_free();
      try {
        pool.reserve(slot, n_tokens);
        check(fits);
        while (tags[slot].size() < n_blocks) {
          const auto block = static_cast<uint32_t>(tags[slot].size());
          tags[slot].push_back(next_tag++);
          probe.write(block % 4, slot, block * kBlockTokens + 5, tags[slot].back());
        }
      } catch (const CapacityError&) {
        check(!fits);
      }
    }
    pool.check_integrity();
    size_t n_bound = 0;
    for (const auto& [owner, blocks] : tags) n_bound += blocks.size();
    check_equal(pool.bundles_bound(), n_bound);
    for (uint32_t block = 0; block < tags[slot].size(); ++block) {
      check(probe.holds(block % 4, slot, block * kBlockTokens + 5, tags[slot][block]));
    }
  }
  for (const auto& [slot, blocks] : tags) {
    for (uint32_t block = 0; block < blocks.size(); ++block) {
      check(probe.holds(block % 4, slot, block * kBlockTokens + 5, blocks[block]));
    }
  }
}

void test_banks() {
  Device device(library_path);
  Commands commands(device);
  RowCopier copier(device);
  const uint64_t before = device.allocated_bytes();
  {
    GdnBanks banks(device, 3, 50'000);
    check(banks.bank_floats() >= 50'000);
    check_equal(banks.span().bytes, 6 * banks.bank_floats() * sizeof(float));
    check_equal(device.allocated_bytes(), before);
    banks.ensure(2);
    banks.ensure(0);
    banks.ensure(2);
    check_equal(banks.heap_bytes(), 4 * banks.bank_floats() * sizeof(float));
    check_equal(device.allocated_bytes(), before + banks.heap_bytes());
    const auto address = [&](uint64_t slot, uint64_t bank) {
      return banks.base_address() + (slot * 2 + bank) * banks.bank_floats() * sizeof(float);
    };
    for (const uint64_t slot : {0, 2}) {
      for (const uint64_t bank : {0, 1}) {
        copier.store(commands, address(slot, bank),
                     ramp(50'000, static_cast<float>(10 * slot + bank)));
      }
    }
    for (const uint64_t slot : {0, 2}) {
      for (const uint64_t bank : {0, 1}) {
        check(copier.load(commands, address(slot, bank), 50'000) ==
              ramp(50'000, static_cast<float>(10 * slot + bank)));
      }
    }
    check_equal(banks.bank(1), 0U);
    banks.flip(1);
    check_equal(banks.bank(1), 1U);
    check_equal(banks.bank(0), 0U);
    banks.flip(1);
    banks.flip(1);
    banks.reset(1);
    check_equal(banks.bank(1), 0U);
    check_throws<std::out_of_range>([&] { banks.ensure(3); }, "");
  }
  check_equal(device.allocated_bytes(), before);
  check_throws<CapacityError>([&] { const GdnBanks none(device, 8, UINT64_MAX / 8); }, "8 slots");
}

void test_bank_waste_is_small() {
  Device device(library_path);
  for (const uint64_t floats : {100ULL, 5'000ULL, 70'000ULL, 1'000'000ULL, 12'900'001ULL}) {
    const GdnBanks banks(device, 1, floats);
    const uint64_t waste = (banks.bank_floats() - floats) * sizeof(float);
    check(waste < 16 * kKiB || waste <= floats * sizeof(float) / 64);
  }
}

void test_open_and_close() {
  Device device(library_path);
  const uint64_t before = device.allocated_bytes();
  for (int i = 0; i < 20; ++i) {
    KvPool pool(device, kSmall, kNoLimit);
    GdnBanks banks(device, 3, 4096);
    pool.reserve(1, 700);
    pool.reserve(2, 100);
    banks.ensure(1);
    pool.release(2);
  }
  check_equal(device.allocated_bytes(), before);
}

// An engine closes by stopping the pass first: the memory must come back all the same, at once.
void test_close_while_stopped() {
  Device device(library_path);
  const uint64_t before = device.allocated_bytes();
  {
    KvPool pool(device, kSmall, kNoLimit);
    GdnBanks banks(device, 3, 4096);
    pool.reserve(1, 700);
    banks.ensure(1);
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
  return run({{"data stands where it was put", test_data_stands_where_it_was_put},
              {"released memory serves another slot", test_released_memory_serves_another_slot},
              {"full pool changes nothing", test_full_pool_changes_nothing},
              {"planes in several buffers", test_planes_in_several_buffers},
              {"release takes the mappings away", test_release_takes_the_mappings_away},
              {"random schedule", test_random_schedule},
              {"banks", test_banks},
              {"bank waste is small", test_bank_waste_is_small},
              {"open and close", test_open_and_close},
              {"close while stopped", test_close_while_stopped}},
             n_arguments > 2 ? arguments[2] : "");
}
