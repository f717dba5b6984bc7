// The memory of the GDN layers' states: banks of bundles, of which passes read some and write others.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "cache/bundle_pool.hpp"
#include "gpu/device.hpp"

namespace mtlqwen {

// One sparse buffer: bank b starts at float b * bank_floats(). A bank without owners stays mapped as
// a spare, and is the first to be taken again. Calls stand between passes: no round of Commands may
// be in flight. One thread at a time; the Device and the pool outlive it.
class GdnBanks {
 public:
  // n_floats: of all layers' states in one bank; 0: a model without GDN layers, whose banks are only
  // numbers. There are addresses for `least` banks and as many more as max_bytes can hold. From
  // most_ranges mapped ranges on none is added: a process has a limit of them. Throws CapacityError,
  // DeviceError.
  GdnBanks(Device& device, BundlePool& pool, uint64_t n_floats, uint32_t least, uint64_t max_bytes,
           uint64_t most_ranges = 16384);
  ~GdnBanks();
  GdnBanks(const GdnBanks&) = delete;
  GdnBanks& operator=(const GdnBanks&) = delete;

  [[nodiscard]] Span span() const { return buffer_.span(); }
  [[nodiscard]] const Buffer& buffer() const { return buffer_; }
  [[nodiscard]] uint64_t bank_floats() const { return bank_bytes_ / sizeof(float); }  // the stride
  [[nodiscard]] uint32_t bank_bundles() const { return bank_bundles_; }

  // A bank with one owner; contents are undefined (a query with kv_valid 0 reads none). Throws
  // CapacityError; at most there is one spare more then.
  [[nodiscard]] uint32_t take();
  void share(uint32_t bank) { ++banks_.at(bank).refs; }  // one more owner
  void drop(uint32_t bank) noexcept;                     // one less; a spare without any
  [[nodiscard]] uint32_t refs(uint32_t bank) const { return banks_.at(bank).refs; }
  [[nodiscard]] std::span<const uint32_t> bundles(uint32_t bank) const {
    return banks_.at(bank).bundles;
  }

  // Gives the bundles of all spares but `keep` back to the pool.
  void reclaim(uint32_t keep = 0);

  // Mappings are known to have happened once a later round succeeded: confirm(). After one that
  // failed they may be what failed: they are made again, those of a bank at its next take().
  void confirm() noexcept;
  void forget_unconfirmed();

  [[nodiscard]] uint32_t n_spare() const { return static_cast<uint32_t>(spares_.size()); }
  // Banks that take() has addresses for.
  [[nodiscard]] uint32_t n_free() const {
    return n_ranges_ < most_ranges_ ? max_banks_ - n_owned_ : n_spare();
  }
  [[nodiscard]] uint64_t held_bytes() const;  // spares included

  void add_refs(std::span<uint32_t> refs) const;  // see BundlePool::check_integrity()
  // owners: of each bank, as those who own them count. Throws std::logic_error.
  void check_integrity(std::span<const uint32_t> owners) const;
  [[nodiscard]] std::vector<uint32_t> no_owners() const {
    return std::vector<uint32_t>(banks_.size(), 0);
  }

 private:
  struct Bank {
    std::vector<uint32_t> bundles;
    uint32_t refs = 0;
    uint32_t n_ranges = 0;    // that its addresses were mapped in
    bool has_memory = false;  // owned, or a spare
    bool is_mapped = false;
  };
  void add_spare();
  void map(uint32_t bank);
  void unmap(std::span<const uint32_t> banks);
  [[nodiscard]] uint64_t bank_tiles() const;

  Device& device_;
  BundlePool& pool_;
  uint32_t bank_bundles_;
  uint64_t bank_bytes_;
  uint64_t most_ranges_;
  uint64_t n_ranges_ = 0;  // of all banks that have memory
  uint32_t max_banks_ = 0;
  uint32_t n_owned_ = 0;
  Buffer buffer_;
  std::vector<Bank> banks_;       // so far
  std::vector<uint32_t> spares_;  // a stack; room for all, so that drop() cannot fail
  std::vector<uint32_t> mapped_;  // since confirm()
  std::vector<uint32_t> unmapped_;
};

}  // namespace mtlqwen
