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

  [[nodiscard]] Span pass() const { return pass_; }
  [[nodiscard]] Span logit_pass() const { return logit_pass_; }  // rows = n_logit_rows
  [[nodiscard]] Span queries() const { return queries_; }
  [[nodiscard]] Span writes() const { return writes_; }
  [[nodiscard]] Span row_query() const { return row_query_; }
  [[nodiscard]] Span input_ids() const { return input_ids_; }
  [[nodiscard]] Span logit_rows() const { return logit_rows_; }
  [[nodiscard]] Span samples() const { return samples_; }
  [[nodiscard]] Span sampled() const { return sampled_; }
  [[nodiscard]] uint64_t bytes() const { return arena_.buffer().bytes(); }

 private:
  void pack_query(const PackedQuery& packed, uint32_t index);
  void pack_writes(const Query& query, uint32_t index);
  template <class T>
  [[nodiscard]] T* at(Span span) const {
    return static_cast<T*>(arena_.at(span));
  }

  Arena arena_;
  Span pass_, logit_pass_;
  Span queries_;     // (slots) QueryArgs
  Span writes_;      // (kPassRows) StateWriteArgs
  Span row_query_;   // (kPassRows) uint32
  Span input_ids_;   // (kPassRows) int32
  Span logit_rows_;  // (slots) uint32
  Span samples_;     // (slots) SampleArgs
  Span sampled_;     // (slots) int32, written by sample_pick
  uint32_t n_logit_rows_ = 0;
  uint32_t n_writes_ = 0;
};

}  // namespace mtlqwen
