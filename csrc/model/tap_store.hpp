// The account of rows that wait on the device for a drafter to need them: which row of the store is whose.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

namespace mtlqwen {

// Invariant: the rows that wait of one slot stand for consecutive positions, and every row of the
// store is free, taken for the last pass, or waits for exactly one slot.
class TapStore {
 public:
  TapStore(uint32_t slots, uint32_t capacity);

  // What waits of one slot, in the order of positions.
  struct Waiting {
    uint32_t position = 0;  // of the first
    std::vector<uint32_t> rows{};
  };
  [[nodiscard]] uint32_t n_slots() const { return static_cast<uint32_t>(waiting_.size()); }
  [[nodiscard]] const Waiting& waiting(uint32_t slot) const { return waiting_.at(slot); }
  [[nodiscard]] uint32_t n_waiting(uint32_t slot) const {
    return static_cast<uint32_t>(waiting(slot).rows.size());
  }
  [[nodiscard]] uint32_t n_free() const { return static_cast<uint32_t>(free_.size()) + n_loose_; }

  // Rows for a pass of n <= n_free(), the lowest ones. What an earlier pass took and nobody kept is free again.
  void take(uint32_t n);
  // These rows, by row of the pass, until something of them is kept.
  [[nodiscard]] std::span<const uint32_t> taken() const { return taken_; }
  // Rows [first, first + n) of that pass hold: they are the slot's at `position` and behind.
  void keep(uint32_t slot, uint32_t position, uint32_t first, uint32_t n);
  // The first n that wait of a slot, or all of them, do so no more.
  void settle(uint32_t slot, uint32_t n);
  void drop(uint32_t slot);

 private:
  void put_back(uint32_t row);
  void put_back_taken();

  static constexpr uint32_t kKept = UINT32_MAX;
  std::vector<Waiting> waiting_;  // (slots)
  std::vector<uint32_t> free_;    // a heap, the lowest first
  std::vector<uint32_t> taken_;   // by row of the pass; kKept: it waits now
  uint32_t n_loose_ = 0;          // of them, the others
};

}  // namespace mtlqwen
