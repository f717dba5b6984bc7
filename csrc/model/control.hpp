// The arrays that tell the kernels what a pass consists of: written by the CPU before it, read by
// every kernel.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "base/types.hpp"
#include "kernel_args.h"
#include "model/arena.hpp"
#include "model/program.hpp"

namespace mtlqwen {

// Keys of one block of the attention kernels, absolute in a sequence: its memory is cut into blocks of its own.
inline constexpr uint32_t kSplitKeys = 128;

// Ids that end a text, of each slot; a query with more is not checked on the device.
inline constexpr uint32_t kStopsOfQuery = 16;

// One query together with the tokens of its rows and the way its last row is sampled.
struct PackedQuery {
  Query query;
  std::span<const int32_t> tokens;  // query.count ids
  Sampling sampling;
};

// The smallest power of two, at least `least`, with which the splits of `longest` keys fit the attention scratch.
// capacity: (row, split) pairs that it holds, at least rows.
[[nodiscard]] uint32_t blocks_per_split(uint32_t rows, uint32_t longest, uint32_t least,
                                        uint32_t capacity);

// What the kernels of one pass find everything by.
struct PassBuffers {
  uint8_t index = 0;  // of the pass, see StepShape
  Span pass;
  Span logit_pass;  // Pass with rows = n_logit_rows
  Span queries;     // (slots) QueryArgs
  Span writes;      // (kPassRows) StateWriteArgs
  Span row_query;   // (kPassRows) uint32
  Span input_ids;   // (kPassRows) int32
  Span logit_rows;  // (slots) uint32
  Span samples;     // (slots) SampleArgs
  Span sampled;     // (slots) int32, written by sample_pick
  Span verifies;    // (slots) VerifyArgs
  Span accepted;    // (slots) uint32, written by verify
  Span stops;       // (slots, kStopsOfQuery) int32
  Span places;      // (kPassRows) uint32: where in the target's input_ids a drafter's `sampled` go
};

// Shared memory; one pass at a time.
class Control {
 public:
  Control(Device& device, uint32_t slots);

  // Fills all arrays. See blocks_per_split() for the last two.
  // Invariant: logit row i belongs to the i-th query that emits.
  PassShape pack(std::span<const PackedQuery> queries, uint32_t min_blocks_per_split,
                 uint32_t partial_capacity);
  [[nodiscard]] std::span<const int32_t>
  sampled_ids() const;  // one for each logit row of the last pass

  [[nodiscard]] const PassBuffers& buffers() const { return buffers_; }
  [[nodiscard]] uint64_t bytes() const { return arena_.buffer().bytes(); }

 private:
  void pack_query(const PackedQuery& packed, uint32_t index);
  void pack_writes(const Query& query, uint32_t index);
  template <class T>
  [[nodiscard]] T* at(Span span) const {
    return static_cast<T*>(arena_.at(span));
  }

  Arena arena_;
  PassBuffers buffers_;
  uint32_t n_logit_rows_ = 0;
  uint32_t n_writes_ = 0;
};

}  // namespace mtlqwen
