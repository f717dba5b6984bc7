// cache/: banks of GDN states on the device.
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "cache/gdn_banks.hpp"
#include "check.hpp"
#include "gpu/platform.hpp"
#include "kv_probe.hpp"

namespace mtlqwen::testing {
namespace {

std::string library_path;  // the program's first argument

constexpr uint64_t kFloats = 50'000;
constexpr uint32_t kBankBundles = 4;  // of kSmallBundle

struct BankMemory {
  Device device{library_path};
  BundlePool pool{device, bundle_shape(kSmall)};
  GdnBanks banks{device, pool, kFloats, 3, 8 * kBankBundles * kSmallBundle};
  Commands commands{device};
  RowCopier copier{device};

  explicit BankMemory(uint64_t bundles = 100) { pool.set_limit(BundlePool::kNoLimit, bundles); }

  void write(uint32_t bank, float tag) {
    copier.store(commands, address(bank), ramp(kFloats, tag));
  }
  [[nodiscard]] bool holds(uint32_t bank, float tag) {
    return copier.load(commands, address(bank), kFloats) == ramp(kFloats, tag);
  }
  [[nodiscard]] uint64_t address(uint32_t bank) const {
    return banks.span().address + bank * banks.bank_floats() * sizeof(float);
  }
  void check_integrity(const std::vector<uint32_t>& owned) const {
    std::vector<uint32_t> refs = pool.no_refs();
    banks.add_refs(refs);
    pool.check_integrity(refs);
    std::vector<uint32_t> owners = banks.no_owners();
    for (const uint32_t bank : owned) ++owners.at(bank);
    banks.check_integrity(owners);
  }
  void settle() {
    commands.begin();
    commands.commit_and_wait();
  }
};

void test_states_stand_where_they_were_put() {
  BankMemory memory;
  check_equal(memory.banks.bank_bundles(), kBankBundles);
  check_equal(memory.banks.bank_floats(), kBankBundles * kSmallBundle / sizeof(float));
  check_equal(memory.banks.span().bytes, 8 * kBankBundles * kSmallBundle);
  check_equal(memory.pool.heap_bytes(), 0U);
  std::vector<uint32_t> owned;
  for (int i = 0; i < 3; ++i) owned.push_back(memory.banks.take());
  check(owned == std::vector<uint32_t>{0, 1, 2});
  check_equal(memory.banks.held_bytes(), 3 * kBankBundles * kSmallBundle);
  check_equal(memory.pool.n_used(), 3 * kBankBundles);
  for (const uint32_t bank : owned) memory.write(bank, 1.0F + static_cast<float>(bank));
  for (const uint32_t bank : owned) check(memory.holds(bank, 1.0F + static_cast<float>(bank)));
  memory.check_integrity(owned);
  check_throws<std::logic_error>([&] { memory.check_integrity({0, 1}); }, "bank 2: has 0 owners");
  check_throws<std::logic_error>([&] { memory.check_integrity({0, 1, 2, 2}); }, "counts 1");
}

void test_a_bank_is_shared_and_becomes_a_spare() {
  BankMemory memory;
  const uint32_t bank = memory.banks.take();
  memory.write(bank, 3.0F);
  memory.banks.share(bank);
  memory.banks.drop(bank);
  check_equal(memory.banks.n_spare(), 0U);
  check(memory.banks.take() != bank);
  check(memory.holds(bank, 3.0F));
  memory.banks.drop(bank);
  check_equal(memory.banks.n_spare(), 1U);
  check_equal(memory.pool.n_used(), 2 * kBankBundles);
  check_equal(memory.banks.take(), bank);  // as it was
  check(memory.holds(bank, 3.0F));
  memory.check_integrity({0, 1});
}

void test_spares_are_reclaimed() {
  BankMemory memory;
  for (int i = 0; i < 4; ++i) (void)memory.banks.take();
  memory.write(3, 5.0F);
  for (const uint32_t bank : {1, 0, 2}) memory.banks.drop(bank);
  memory.banks.reclaim(3);
  check_equal(memory.banks.n_spare(), 3U);
  memory.banks.reclaim(1);
  check_equal(memory.banks.n_spare(), 1U);
  check_equal(memory.pool.n_used(), 2 * kBankBundles);
  memory.check_integrity({3});
  memory.settle();
  if (memory.device.is_software()) {
    check(is_readable(memory.address(0)));  // the lowest stays
    check(!is_readable(memory.address(1)));
    check(!is_readable(memory.address(2)));
  }
  check(memory.holds(3, 5.0F));
  check_equal(memory.banks.take(), 0U);
  check_equal(memory.banks.take(), 1U);
  memory.write(1, 6.0F);
  check(memory.holds(1, 6.0F));
  memory.check_integrity({0, 1, 3});
}

void test_banks_without_memory_or_address() {
  BankMemory memory(2 * kBankBundles);
  (void)memory.banks.take();
  (void)memory.banks.take();
  check_throws<CapacityError>([&] { (void)memory.banks.take(); }, "got 0 free bundles of 8");
  memory.check_integrity({0, 1});
  BankMemory roomy;
  std::vector<uint32_t> owned;
  check_equal(roomy.banks.n_free(), 8U);
  for (int i = 0; i < 8; ++i) owned.push_back(roomy.banks.take());
  check_equal(roomy.banks.n_free(), 0U);
  check_throws<CapacityError>([&] { (void)roomy.banks.take(); }, "no address for another bank");
  roomy.check_integrity(owned);
  Device device(library_path);
  BundlePool pool(device, bundle_shape(kSmall));
  check_throws<CapacityError>([&] { const GdnBanks none(device, pool, UINT64_MAX / 8, 1, 0); },
                              "too large");
  check_throws<CapacityError>([&] { const GdnBanks none(device, pool, 1ULL << 33, 1U << 20, 0); },
                              "1048576 banks of 8589934592 floats");
}

// A bank of adjacent bundles is mapped by one range a piece (kSmall has 4), one of scattered bundles
// by one for each piece of each.
void test_banks_take_adjacent_bundles_and_count_their_ranges() {
  BankMemory memory;
  GdnBanks few(memory.device, memory.pool, kFloats, 1, 100 * kBankBundles * kSmallBundle, 8);
  std::vector<uint32_t> holes = memory.pool.take(2 * kBankBundles);
  for (size_t i = 0; i < holes.size(); i += 2) memory.pool.drop({&holes[i], 1});
  const uint32_t bank = few.take();
  const std::span<const uint32_t> bundles = few.bundles(bank);
  for (size_t i = 1; i < bundles.size(); ++i) check_equal(bundles[i], bundles[0] + i);
  check(few.n_free() > 10);
  const uint32_t second = few.take();
  check_equal(few.n_free(), 0U);  // both together have 8 ranges: no more
  few.drop(second);
  check_equal(few.n_free(), 1U);  // the spare
  few.reclaim();
  check(few.n_free() > 10);

  BankMemory full(2 * kBankBundles - 1);
  holes = full.pool.take(2 * kBankBundles - 1);
  for (size_t i = 0; i < holes.size(); i += 2) full.pool.drop({&holes[i], 1});
  GdnBanks scattered(full.device, full.pool, kFloats, 1, 100 * kBankBundles * kSmallBundle, 17);
  const uint32_t only = scattered.take();
  check_equal(scattered.bundles(only)[0], scattered.bundles(only)[1] + 2);  // the last first
  check(scattered.n_free() > 10);                                           // 16 ranges
}

void test_a_model_without_states() {
  Device device(library_path);
  BundlePool pool(device, bundle_shape(kSmall));
  GdnBanks banks(device, pool, 0, 4, 0);
  for (uint32_t i = 0; i < 20; ++i) check_equal(banks.take(), i);
  check_equal(banks.held_bytes(), 0U);
  banks.drop(7);
  banks.reclaim();
  check_equal(banks.take(), 7U);
  check_equal(pool.n_used(), 0U);
}

// A mapping that fails is told by the next round. What was mapped since the last good one is mapped
// again.
void test_a_failed_mapping_is_made_again() {
  BankMemory memory;
  if (!memory.device.is_software()) return;  // only there faults can be ordered
  const uint32_t good = memory.banks.take();
  memory.write(good, 1.0F);
  memory.banks.confirm();
  inject_fault(Fault::kMapping, 1);
  const uint32_t bad = memory.banks.take();
  check_throws<CapacityError>([&] { memory.settle(); }, "mapped ranges");
  check(!is_readable(memory.address(bad)));
  memory.banks.drop(bad);
  memory.banks.forget_unconfirmed();
  check_equal(memory.banks.take(), bad);
  memory.write(bad, 2.0F);
  check(memory.holds(bad, 2.0F));
  check(memory.holds(good, 1.0F));
  memory.banks.confirm();
  memory.banks.drop(bad);
  inject_fault(Fault::kMapping, 1);
  memory.banks.reclaim();
  check_throws<CapacityError>([&] { memory.settle(); }, "mapped ranges");
  memory.banks.forget_unconfirmed();
  memory.settle();
  check(!is_readable(memory.address(bad)));
  memory.check_integrity({good});
}

}  // namespace
}  // namespace mtlqwen::testing

int main(int n_arguments, char** arguments) {
  using namespace mtlqwen::testing;
  if (n_arguments < 2) return 2;
  library_path = arguments[1];
  return run({{"states stand where they were put", test_states_stand_where_they_were_put},
              {"a bank is shared and becomes a spare", test_a_bank_is_shared_and_becomes_a_spare},
              {"spares are reclaimed", test_spares_are_reclaimed},
              {"banks without memory or address", test_banks_without_memory_or_address},
              {"banks take adjacent bundles and count their ranges",
               test_banks_take_adjacent_bundles_and_count_their_ranges},
              {"a model without states", test_a_model_without_states},
              {"a failed mapping is made again", test_a_failed_mapping_is_made_again}},
             n_arguments > 2 ? arguments[2] : "");
}
