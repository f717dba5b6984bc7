// A drafter's context, computed when somebody needs it: many rows at once, and none that nobody asks for.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "model/arena.hpp"
#include "model/control.hpp"
#include "model/program.hpp"
#include "model/tap_store.hpp"

namespace mtlqwen {

// Rows that the store holds. A context is small work that reads all weights of its projections: for
// one row of each sequence in every pass it would cost as much as for a hundred.
inline constexpr uint32_t kStoredTaps = 1024;

// The rows that a pass of the target taps are copied to a store at its end. They leave it, at most
// kPassRows at once, through `input`, which the launches of the context's own pass read.
class LazyContext {
 public:
  // (kPassRows) rows of `row_bytes`, both: taps are what the target's pass writes.
  struct Rows {
    const Buffer& scratch;
    Span taps, input;
    uint64_t row_bytes = 0;
  };
  LazyContext(Device& device, uint32_t slots, uint8_t pass_index, const Rows& rows);

  [[nodiscard]] const PassBuffers& buffers() const { return control_.buffers(); }
  [[nodiscard]] uint32_t n_waiting(uint32_t slot) const {
    return static_cast<uint32_t>(store_.waiting(slot).rows.size());
  }
  [[nodiscard]] uint32_t n_free() const { return store_.n_free(); }
  [[nodiscard]] std::vector<uint32_t> fullest_first() const;  // slots

  // The round to come computes the context of these slots, as far as kPassRows reach; rows.
  uint32_t pack(std::span<const uint32_t> slots, StepShape& shape);
  void encode_input(Commands& commands) const;  // before its launches, and a barrier behind it
  // Its target's pass has n rows, n <= n_free().
  void take(uint32_t n) { taken_ = store_.take(n); }
  void encode_taps(Commands& commands) const;  // behind its last launch, and a barrier
  void done();                                 // it succeeded

  // Rows [first, first + n) of the target's last pass hold, and stand at `position` of the slot.
  void keep(uint32_t slot, uint32_t position, uint32_t first, uint32_t n) {
    store_.keep(slot, position, first, n);
  }
  void drop(uint32_t slot) { store_.drop(slot); }
  [[nodiscard]] uint64_t bytes() const { return control_.bytes() + store_rows_.bytes(); }

 private:
  struct Part {
    uint32_t slot = 0;
    uint32_t n = 0;
  };
  [[nodiscard]] uint64_t offset_of(const Span& rows, uint32_t row) const;

  const Rows rows_;
  const uint8_t pass_index_;
  Control control_;
  Buffer store_rows_;  // (kStoredTaps)
  TapStore store_;
  std::span<const uint32_t> taken_;  // rows of the store, by row of the target's pass
  std::vector<Part> parts_;          // of the round to come
};

}  // namespace mtlqwen
