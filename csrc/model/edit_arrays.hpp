// The arrays behind edit_logits: what the requests of a pass change about their logits. Shared
// memory that grows with what the texts hold; one pass at a time.
#pragma once
#include <cstdint>
#include <optional>
#include <span>

#include "kernel_args.h"
#include "model/arena.hpp"
#include "model/control.hpp"

namespace mtlqwen {

class Program;

// What the kernels find the arrays by.
struct EditSpans {
  Span args;         // (sampled_rows) EditArgs
  Span saved;        // (n) float, raw logits
  Span entries;      // (n) TokenEdit
  Span words;        // (n) BadWord
  Span word_tokens;  // (n) int32
  Span tails;        // (n) int32
};

class EditArrays {
 public:
  EditArrays(Device& device, uint32_t sampled_rows);

  // Fills the arrays for the rows that the queries sample, in the order of Control::pack; returns how
  // many rows are edited. Where they had to grow, `program` is told where they stand now. Throws
  // DeviceError where there is no memory for them.
  uint32_t pack(std::span<const PackedQuery> queries, Program& program);

  // Where a row's mask leaves nothing else, a text's end comes whatever its least length is.
  void allow_stops(uint32_t logit_row);

  [[nodiscard]] const EditSpans& spans() const { return spans_; }
  [[nodiscard]] uint64_t bytes() const { return arena_->buffer().bytes(); }

 private:
  // Elements of each array.
  struct Sizes {
    uint32_t saved = 0;
    uint32_t entries = 0;
    uint32_t words = 0;
    uint32_t word_tokens = 0;
    uint32_t tails = 0;
    bool operator==(const Sizes&) const = default;
  };
  static Sizes sizes_of(std::span<const PackedQuery> queries);
  void lay_out(const Sizes& sizes);
  void grow(const Sizes& wanted, Program& program);
  void add_query(const PackedQuery& packed, uint32_t first_logit);
  template <class T>
  [[nodiscard]] T* at(const Span& array) const {
    return static_cast<T*>(arena_->at(array));
  }
  template <class T>
  uint32_t put(const Span& array, uint32_t& n, std::span<const T> items);

  Device& device_;
  uint32_t sampled_rows_;
  std::optional<Arena> arena_;
  Sizes room_;
  EditSpans spans_;
  uint32_t n_edits_ = 0;  // of the last pass
  Sizes used_;
};

}  // namespace mtlqwen
