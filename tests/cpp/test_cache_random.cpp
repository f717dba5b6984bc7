// cache/: random use of blocks, banks and checkpoints against a plain model of who holds what, and
// every allocation and mapping of a fixed course made to fail.
#include <algorithm>
#include <cstdint>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "cache/gdn_banks.hpp"
#include "check.hpp"
#include "gpu/platform.hpp"
#include "kv_probe.hpp"

namespace mtlqwen::testing {
namespace {

std::string library_path;  // the program's first argument

constexpr uint32_t kSlots = 3;
constexpr uint32_t kBankFloats = 20'000;  // two bundles

// The tokens of one sequence that were marked, and with what; plane position % 4.
using Marks = std::vector<std::pair<uint32_t, float>>;

struct SlotModel {
  uint32_t kv_valid = 0;
  Marks marks;
  std::vector<uint32_t> bank;  // one, or none
};

struct Checkpoint {
  uint32_t n_tokens = 0;
  Marks marks;
  uint32_t bank = 0;
  std::vector<uint32_t> bundles;
};

// An engine without a model: sequences in slots, checkpoints of them, passes that write.
class Sequences {
 public:
  Sequences(uint64_t max_bundles, uint32_t block_tokens)
      : memory_(library_path, shape(block_tokens),
                max_bundles * bundle_shape(shape(block_tokens)).bytes()),
        banks_(memory_.device, memory_.pool, kBankFloats, 2, 40 * memory_.pool.bundle_bytes()),
        commands_(memory_.device), copier_(memory_.device) {}

  // A pass over n more tokens of one slot; its first new token is marked. False: no memory.
  bool advance(uint32_t slot, uint32_t n, bool is_stopped) {
    SlotModel& model = slots_[slot];
    const uint32_t end = model.kv_valid + n;
    const uint32_t n_missing = memory_.kv.missing_bundles(slot, end, model.kv_valid);
    const uint32_t of_bank = banks_.n_spare() == 0 ? banks_.bank_bundles() : 0;
    if (n_missing + of_bank > memory_.pool.n_free()) banks_.reclaim(1);
    if (n_missing + of_bank > memory_.pool.n_free()) return false;
    memory_.kv.reserve(slot, end, model.kv_valid);
    const uint32_t bank = banks_.take();
    const float tag = next_tag_++;
    try {
      if (is_stopped) throw Aborted("stopped");
      memory_.probe.run(memory_.kv.pending_copies());
      memory_.probe.write(model.kv_valid % 4, slot, model.kv_valid, tag);
      copier_.store(commands_, bank_address(bank), {tag, static_cast<float>(end)});
    } catch (const Aborted&) {
      banks_.drop(bank);
      return true;
    } catch (...) {
      banks_.drop(bank);
      throw;
    }
    banks_.confirm();
    memory_.kv.copies_done();
    model.marks.emplace_back(model.kv_valid, tag);
    model.kv_valid = end;
    for (const uint32_t old : model.bank) banks_.drop(old);
    model.bank = {bank};
    return true;
  }

  void release(uint32_t slot) {
    memory_.kv.release(slot);
    for (const uint32_t bank : slots_[slot].bank) banks_.drop(bank);
    slots_[slot] = {};
  }

  void publish(uint32_t slot) {
    const SlotModel& model = slots_[slot];
    if (model.kv_valid == 0 || !memory_.kv.pending_copies().empty()) return;
    const auto n_blocks = memory_.kv.blocks_of(model.kv_valid);
    Checkpoint one{.n_tokens = model.kv_valid,
                   .marks = model.marks,
                   .bank = model.bank[0],
                   .bundles = copy_of(memory_.kv.bundles(slot).first(n_blocks))};
    memory_.pool.share(one.bundles);
    banks_.share(one.bank);
    checkpoints_.push_back(std::move(one));
  }

  void recall(uint32_t slot, size_t index) {
    if (checkpoints_.empty()) return;
    const Checkpoint& one = checkpoints_[index % checkpoints_.size()];
    release(slot);
    memory_.kv.adopt(slot, one.bundles);
    banks_.share(one.bank);
    slots_[slot] = {.kv_valid = one.n_tokens, .marks = one.marks, .bank = {one.bank}};
  }

  void evict(size_t index) {
    if (checkpoints_.empty()) return;
    const auto one =
        checkpoints_.begin() + static_cast<std::ptrdiff_t>(index % checkpoints_.size());
    memory_.pool.drop(one->bundles);
    banks_.drop(one->bank);
    checkpoints_.erase(one);
  }

  void trim() {
    banks_.reclaim();
    memory_.pool.trim();
  }

  // All counts, and every mark of a slot.
  void check_slot(uint32_t slot) {
    check_counts();
    const SlotModel& model = slots_[slot];
    const bool has_pending_copy = !memory_.kv.pending_copies().empty();
    if (has_pending_copy) return;  // a stopped pass left the slot's last block unreadable
    for (const auto& [position, tag] : model.marks) {
      check(memory_.probe.holds(position % 4, slot, position, tag));
    }
    if (model.bank.empty()) return;
    const std::vector<float> state{model.marks.back().second, static_cast<float>(model.kv_valid)};
    check(copier_.load(commands_, bank_address(model.bank[0]), 2) == state);
  }

  void check_counts() const {
    std::vector<uint32_t> others;
    std::vector<uint32_t> owners = banks_.no_owners();
    for (const SlotModel& model : slots_) {
      for (const uint32_t bank : model.bank) ++owners.at(bank);
    }
    for (const Checkpoint& one : checkpoints_) {
      others.insert(others.end(), one.bundles.begin(), one.bundles.end());
      ++owners.at(one.bank);
    }
    for (uint32_t bank = 0; bank < owners.size(); ++bank) {
      const auto bundles = banks_.bundles(bank);
      others.insert(others.end(), bundles.begin(), bundles.end());
    }
    memory_.check_integrity(others);
    banks_.check_integrity(owners);
  }

  // After a failed pass, as an engine does: whoever is live has failed.
  void fail_all() {
    for (uint32_t slot = 0; slot < kSlots; ++slot) release(slot);
    memory_.kv.forget_unconfirmed();
    banks_.forget_unconfirmed();
  }
  void settle() { memory_.settle(); }
  [[nodiscard]] const SlotModel& slot(uint32_t index) const { return slots_[index]; }
  [[nodiscard]] uint32_t slot_tokens() const { return memory_.kv.slot_tokens(); }
  [[nodiscard]] size_t n_checkpoints() const { return checkpoints_.size(); }

 private:
  static KvShape shape(uint32_t block_tokens) {
    return {.n_planes = 4,
            .token_bytes = 256,
            .slots = kSlots,
            .context = 600,
            .block_tokens = block_tokens};
  }
  [[nodiscard]] uint64_t bank_address(uint32_t bank) const {
    return banks_.span().address + bank * banks_.bank_floats() * sizeof(float);
  }

  KvMemory memory_;
  GdnBanks banks_;
  Commands commands_;
  RowCopier copier_;
  SlotModel slots_[kSlots];
  std::vector<Checkpoint> checkpoints_;
  float next_tag_ = 1.0F;
};

void run_random(uint32_t seed, uint32_t block_tokens) {
  std::mt19937 random(seed);
  const auto draw = [&](uint32_t n) { return static_cast<uint32_t>(random() % n); };
  Sequences sequences(12 + draw(20), block_tokens);
  for (int i = 0; i < 250; ++i) {
    const uint32_t slot = draw(kSlots);
    const uint32_t room = sequences.slot_tokens() - sequences.slot(slot).kv_valid;
    switch (draw(10)) {
    case 0:
      sequences.release(slot);
      break;
    case 1:
    case 2:
      sequences.publish(slot);
      break;
    case 3:
      sequences.recall(slot, draw(100));
      break;
    case 4:
      sequences.evict(draw(100));
      break;
    case 5:
      sequences.trim();
      break;
    default:
      if (room == 0) {
        sequences.release(slot);
      } else if (!sequences.advance(slot, 1 + draw(std::min(room, 150U)), draw(5) == 0)) {
        sequences.n_checkpoints() != 0 ? sequences.evict(0) : sequences.release(draw(kSlots));
      }
    }
    sequences.check_slot(slot);
  }
  while (sequences.n_checkpoints() != 0) sequences.evict(0);
  for (uint32_t slot = 0; slot < kSlots; ++slot) sequences.release(slot);
  sequences.trim();
  sequences.check_counts();
}

void test_random_sequences() {
  for (const uint32_t block_tokens : {64U, 128U, 256U}) {
    for (uint32_t seed = 0; seed < 2; ++seed) run_random(seed, block_tokens);
  }
}

// Sharing, copy on write with a stopped pass in between, eviction, spares taken again.
void run_course(Sequences& sequences) {
  const auto pass = [&](uint32_t slot, uint32_t n, bool is_stopped = false) {
    check(sequences.advance(slot, n, is_stopped));
  };
  pass(0, 200);
  sequences.publish(0);
  pass(0, 10, true);
  pass(0, 30);
  sequences.recall(1, 0);
  pass(1, 100);
  sequences.recall(2, 0);
  sequences.evict(0);
  pass(2, 1);
  pass(1, 250);
  for (uint32_t slot = 0; slot < kSlots; ++slot) sequences.check_slot(slot);
  for (uint32_t slot = 0; slot < kSlots; ++slot) sequences.release(slot);
  sequences.trim();
  sequences.settle();
}

// The nth of a kind fails. Returns whether there was one.
bool fails_once(Fault kind, uint32_t nth) {
  Sequences sequences(40, 128);
  inject_fault(kind, nth);
  try {
    run_course(sequences);
  } catch (const CapacityError&) {
    sequences.fail_all();
    while (sequences.n_checkpoints() != 0) sequences.evict(0);
  } catch (const DeviceError&) {  // of a buffer that only the test has
    sequences.fail_all();
    while (sequences.n_checkpoints() != 0) sequences.evict(0);
  }
  const bool is_left = inject_fault(kind, 0);
  sequences.check_counts();
  sequences.trim();
  run_course(sequences);
  sequences.check_counts();
  return !is_left;
}

void test_every_fault_leaves_all_usable() {
  if (max_threads() == 0) return;  // only a software device fails on order
  for (const Fault kind : {Fault::kAllocation, Fault::kMapping}) {
    uint32_t nth = 1;
    while (fails_once(kind, nth)) ++nth;
    check(nth > (kind == Fault::kMapping ? 15U : 3U));
  }
}

}  // namespace
}  // namespace mtlqwen::testing

int main(int n_arguments, char** arguments) {
  using namespace mtlqwen::testing;
  if (n_arguments < 2) return 2;
  library_path = arguments[1];
  return run({{"random sequences", test_random_sequences},
              {"every fault leaves all usable", test_every_fault_leaves_all_usable}},
             n_arguments > 2 ? arguments[2] : "");
}
