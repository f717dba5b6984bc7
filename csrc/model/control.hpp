// The arrays that tell the kernels what a pass consists of: written by the CPU before it, read by
// every kernel.
#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/types.hpp"
#include "kernel_args.h"
#include "model/arena.hpp"
#include "model/masks.hpp"
#include "model/program.hpp"

namespace mtlqwen {

class LogitEdits;

// Keys of one block of the attention kernels, absolute in a sequence: its memory is cut into blocks of its own.
inline constexpr uint32_t kSplitKeys = 128;

// One query together with the tokens of its rows and the way they are sampled.
struct PackedQuery {
  Query query;
  std::span<const int32_t> tokens;  // of its first rows; those of a draft may follow later
  Sampling sampling;
  std::span<const int32_t> stop_ids{};  // that end its text, for a draft
  std::optional<int32_t> opening{};     // no draft goes beyond it either: a grammar begins there
  std::optional<HeldText> held{};       // by a grammar: each of its sampled rows has a mask
  const LogitEdits* edits = nullptr;    // null: its logits stay as they are
  std::span<const int32_t> tail{};      // of its tokens, as far as the edits look back
  uint32_t n_generated = 0;             // its tokens behind the prompt
  std::optional<uint32_t> logprobs{};   // see RequestOptions
  std::optional<uint32_t> prompt_logprobs{};
  std::span<const int32_t> told{};  // the tokens behind the query's told rows
  // Of a drafter's pass:
  uint32_t n_proposed = 0;      // its last rows, which are sampled
  uint32_t position_shift = 1;  // from a row to the position of the token that it tells
  uint32_t first_place = 0;     // row of the target's pass for the id of its first sampled row

  [[nodiscard]] uint32_t n_sampled() const {
    return n_proposed > 0 ? n_proposed : query.n_sampled();
  }
  [[nodiscard]] uint32_t n_logits() const { return query.n_told + n_sampled(); }
};

// What one pass holds at most.
struct PassLimits {
  uint32_t queries = 0;
  uint32_t rows = kPassRows;
  uint32_t sampled_rows = 0;
  uint32_t stops = 0;       // ids, of all queries
  uint32_t mask_words = 0;  // of a mask; 0: no filters, masks and logprobs, as of a drafter's pass
};

// The smallest power of two, at least `least`, with which the splits of `longest` keys fit the attention scratch.
// capacity: (row, split) pairs that it holds, at least rows.
[[nodiscard]] uint32_t blocks_per_split(uint32_t rows, uint32_t longest, uint32_t least,
                                        uint32_t capacity);

// What the kernels of one pass find everything by.
struct PassBuffers {
  uint8_t index = 0;  // of the pass, see StepShape
  Span pass;
  Span logit_pass;     // Pass with rows = n_logit_rows
  Span queries;        // (queries) QueryArgs
  Span writes;         // (rows) StateWriteArgs
  Span row_query;      // (rows) uint32
  Span input_ids;      // (rows) int32
  Span spoilt;         // (rows) uint32, see metal/spoilt.h
  Span spoilt_logits;  // (sampled_rows) uint32, the same of rows that get logits
  Span logit_rows;     // (sampled_rows) uint32
  Span samples;        // (sampled_rows) SampleArgs
  Span places;         // (sampled_rows) uint32: rows of another pass that the ids are tokens of
  Span sampled;        // (sampled_rows) int32, written by sample_pick
  Span filters;        // (filtered rows) FilterArgs
  Span kept;           // (filtered rows) Kept, written by filter_rows
  Span masks;          // (sampled_rows, mask_words) uint32
  Span verifies;       // (queries) VerifyArgs, taped ones first
  Span stops;          // (stops) int32
  Span accepted;       // (queries) uint32, written by verify
  Span logprobs;       // (sampled_rows) LogprobArgs
  Span chosen;         // (sampled_rows) TokenLogprob, written by logprob_rows
  Span likeliest;      // (sampled_rows * kMostLogprobs) TokenLogprob, the same
};

// Logarithms of probability.
struct Logprobs {
  std::span<const TokenLogprob> chosen{};
  std::span<const TokenLogprob> likeliest{};
};

// Shared memory; one pass at a time.
class Control {
 public:
  Control(Device& device, const PassLimits& limits, uint8_t pass_index = 0);

  // Fills all arrays. See blocks_per_split() for the last two.
  // Invariant: logit rows follow the order of the queries, and of the rows in each: told ones, then sampled ones.
  PassShape pack(std::span<const PackedQuery> queries, uint32_t min_blocks_per_split,
                 uint32_t partial_capacity);
  // Of the last pass: an id for each logit row, and how many proposals of each draft hold, in the
  // order of the queries.
  [[nodiscard]] std::span<const int32_t> sampled_ids() const;
  [[nodiscard]] std::span<const uint32_t> accepted();
  // What logprob_rows found, in the order of the rows that it was asked about: of their ids, and of
  // the likeliest ones, as many of each row as were wanted.
  [[nodiscard]] Logprobs logprobs() const;
  // Where each of its rows is spoilt, and each that was sampled.
  [[nodiscard]] std::span<const uint32_t> spoilt() const {
    return {at<uint32_t>(buffers_.spoilt), n_rows_};
  }
  [[nodiscard]] std::span<const uint32_t> spoilt_logits() const {
    return {at<uint32_t>(buffers_.spoilt_logits), n_logit_rows_};
  }
  // Its tokens, those that a drafter proposed included.
  [[nodiscard]] std::span<const int32_t> input_ids() const;
  // Of queries that a grammar holds: what is to be filled. A drafter writes the drafts before.
  [[nodiscard]] std::span<const MaskItem> mask_items() const { return held_; }
  [[nodiscard]] MaskTable masks() const;
  [[nodiscard]] bool masks_held() const { return !held_.empty(); }  // any

  [[nodiscard]] const PassBuffers& buffers() const { return buffers_; }
  [[nodiscard]] uint64_t bytes() const { return arena_.buffer().bytes() + masks_.buffer().bytes(); }

 private:
  void pack_query(const PackedQuery& packed, uint32_t index);
  void pack_writes(const Query& query, uint32_t index);
  void pack_told(const PackedQuery& packed);
  void pack_samples(const PackedQuery& packed);
  [[nodiscard]] uint32_t pack_filter(const Sampling& sampling);
  [[nodiscard]] uint32_t pack_mask(std::span<const uint32_t> mask);
  [[nodiscard]] uint32_t reserve_masks(const PackedQuery& packed);
  void pack_logprobs(uint32_t n_likeliest, int32_t told);
  void pack_check(const PackedQuery& packed, uint32_t index);
  template <class T>
  [[nodiscard]] T* at(Span span) const {
    return static_cast<T*>(arena_.at(span));
  }

  [[nodiscard]] uint32_t* mask_row(uint32_t row) const {
    return static_cast<uint32_t*>(masks_.at(buffers_.masks)) + size_t{row} * mask_words_;
  }

  Arena arena_;
  Arena masks_;  // apart: they are written while kernels work on what stands in the other
  PassBuffers buffers_;
  uint32_t mask_words_;
  // Of the last pass:
  uint32_t n_rows_ = 0;
  uint32_t n_logit_rows_ = 0;
  uint32_t n_writes_ = 0;
  uint32_t n_stops_ = 0;
  uint32_t n_tape_rows_ = 0;
  uint32_t n_filters_ = 0;
  uint32_t n_masks_ = 0;
  uint32_t n_logprobs_ = 0;
  uint32_t n_likeliest_ = 0;
  uint32_t n_taped_ = 0;         // drafts
  uint32_t n_taped_packed_ = 0;  // of them, so far
  std::vector<MaskItem> held_;
  std::vector<uint32_t> verifies_;  // where the drafts stand among buffers_.verifies
  std::vector<uint32_t> accepted_;  // accepted()'s
};

}  // namespace mtlqwen
