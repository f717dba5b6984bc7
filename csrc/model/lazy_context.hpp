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
  // Whose rows are where. A pass of the target takes its rows of it before encode_taps().
  [[nodiscard]] TapStore& store() { return store_; }
  [[nodiscard]] std::vector<uint32_t> fullest_first() const;  // slots

  // The round to come computes the context of these slots, as far as kPassRows reach; rows.
  uint32_t pack(std::span<const uint32_t> slots, StepShape& shape);
  // Copies, before all launches of the round, and a barrier between; whether there are any.
  [[nodiscard]] bool encode_input(Commands& commands) const;
  void encode_taps(Commands& commands) const;  // behind the last launch, and a barrier
  void done();                                 // the round succeeded
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
  std::vector<Part> parts_;  // of the round to come
};

}  // namespace mtlqwen
