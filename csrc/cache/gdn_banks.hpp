// The memory of the GDN layers' states: two banks for each slot, of which passes read one and write
// the other.
#pragma once
#include <cstdint>
#include <vector>

#include "gpu/device.hpp"

namespace mtlqwen {

// One sparse buffer: bank b of slot s starts at float (s * 2 + b) * bank_floats(). A slot's memory
// is taken at its first use and kept until the end. Calls stand between passes: no round of
// Commands may be in flight. One thread at a time; the Device outlives it.
class GdnBanks {
 public:
  // n_floats: of all layers' states in one bank. Throws CapacityError, DeviceError.
  GdnBanks(Device& device, uint32_t slots, uint64_t n_floats);
  ~GdnBanks();
  GdnBanks(const GdnBanks&) = delete;
  GdnBanks& operator=(const GdnBanks&) = delete;

  [[nodiscard]] Span span() const { return buffer_.span(); }
  [[nodiscard]] uint64_t base_address() const { return buffer_.span().address; }
  [[nodiscard]] uint64_t bank_floats() const { return bank_bytes_ / sizeof(float); }  // the stride
  [[nodiscard]] uint64_t heap_bytes() const { return heap_bytes_; }
  [[nodiscard]] uint64_t max_bytes() const { return 2 * heaps_.size() * bank_bytes_; }  // all slots

  // The slot's banks get memory; contents are undefined at first (a query with kv_valid 0 does not
  // read them). Throws CapacityError and then has changed nothing.
  void ensure(uint32_t slot);

  // After a failed pass: the mapping may be what failed, so the next ensure() maps the slot's memory
  // again.
  void forget_mapping(uint32_t slot) { mapped_.at(slot) = false; }

  [[nodiscard]] uint32_t bank(uint32_t slot) const { return current_.at(slot); }  // to be read
  void flip(uint32_t slot) { current_.at(slot) ^= 1U; }  // at commit: what was written is current
  void reset(uint32_t slot) { current_.at(slot) = 0; }   // the slot changes hands

 private:
  [[nodiscard]] MappingRun run_of(uint32_t slot) const;

  Device& device_;
  uint64_t page_bytes_;
  uint64_t bank_bytes_;
  uint64_t heap_bytes_ = 0;
  Buffer buffer_;
  std::vector<Heap> heaps_;   // (slots); empty before the first use
  std::vector<bool> mapped_;  // (slots)
  std::vector<uint32_t> current_;
};

}  // namespace mtlqwen
