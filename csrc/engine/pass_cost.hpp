// How long a pass of decoding takes, learned from those that ran.
#pragma once
#include <array>
#include <cstdint>
#include <vector>

#include "base/types.hpp"

namespace mtlqwen {

// A pass of decoding sequences, as far as its time depends on it. Proposals of n-grams come from the
// host and cost the device nothing: for time they are kNone with more rows.
struct DecodeShape {
  DrafterKind kind = DrafterKind::kNone;  // of the device's drafter, where any sequence uses it
  uint32_t n_sequences = 0;
  uint32_t rows = 0;   // of the target: one a sequence and one a proposal
  uint32_t steps = 0;  // passes of an MTP drafter: its longest draft
};

// What is expected before anything was measured: shares of a pass of one row.
struct PassCostPrior {
  double row = 0.05;  // each further row of the target
  double mtp_step = 0.15;
  double dflash = 0.3;
  double dflash_row = 0.005;  // each row of the target, in its blocks
};

// A time is exp(level) * line(shape) * exp(residual(shape)). The level is common: it follows a
// machine that becomes slower or faster. The line is linear in rows and steps, fitted to what was
// seen. Residuals are kept in cells of kind, sequences and rows; where a cell was not measured they
// come from its neighbours, and rows never make a pass cheaper there. One odd pass says little: a
// time counts only as far as the last ones were odd, too, and of a cell's first times the least
// does, since what disturbs a pass makes it longer.
class PassCost {
 public:
  explicit PassCost(const PassCostPrior& prior = {});
  // Decode-only passes; the first ever sets the level.
  void observe(const DecodeShape& shape, double seconds);
  [[nodiscard]] double estimate(const DecodeShape& shape) const;
  // Seconds for shape.rows, shape.rows + 1 .. most_rows.
  [[nodiscard]] std::vector<double> curve(const DecodeShape& shape, uint32_t most_rows) const;
  // Passes that its cell has seen, as far as they still count.
  [[nodiscard]] float n_measured(const DecodeShape& shape) const;
  // By how much times surprise, as a log ratio: what a single estimate may be wrong by.
  [[nodiscard]] double noise() const { return noise_; }
  [[nodiscard]] bool measured() const { return !known_.empty(); }

 private:
  static constexpr uint32_t kDrafters = 3;  // none, MTP, DFlash
  static constexpr uint32_t kCrowds = 6;    // 1, 2, 3-4, 5-8, 9-16, 17-32 sequences
  static constexpr uint32_t kHeights = 24;  // of rows: each to 8, then four an octave to 128
  static constexpr uint32_t kTerms = 5;     // one row, further rows, MTP steps, DFlash, its rows
  using Terms = std::array<double, kTerms>;
  struct Place {
    uint32_t drafter = 0;
    uint32_t crowd = 0;
    uint32_t height = 0;
  };
  struct Cell {
    DecodeShape shape;    // the last one seen
    float value = 0;      // log of seconds less the level
    float residual = 0;   // of value, against the line
    uint32_t n_seen = 0;  // passes, of the first ones
    float weight = 0;     // passes that it has seen, up to a limit
    float surprise = 0;   // mean of the last ones, without sign
  };
  [[nodiscard]] static Place place_of(const DecodeShape& shape);
  [[nodiscard]] static uint32_t index_of(const Place& place);
  [[nodiscard]] static Terms terms_of(const DecodeShape& shape);
  [[nodiscard]] double line(const DecodeShape& shape) const;
  [[nodiscard]] double residual_at(const Place& place) const;
  void fit();

  Terms prior_;
  Terms line_;  // seconds of each term, in units of exp(level)
  double level_ = 0;
  double noise_ = 0;
  std::array<Cell, kDrafters * kCrowds * kHeights> cells_{};
  std::vector<Place> known_;  // cells that were measured
};

}  // namespace mtlqwen
