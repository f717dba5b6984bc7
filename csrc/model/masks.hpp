// What stands between forward and choose where a grammar holds a text: which ids each of its rows may
// choose. Plain data; whoever knows the grammar fills the masks.
#pragma once
#include <cstdint>
#include <exception>
#include <functional>
#include <span>
#include <vector>

namespace mtlqwen {

// A text that a grammar holds, as far as the grammar has to hear of it.
struct HeldText {
  uint64_t key = 0;                  // of its constraint, whoever gave it
  uint32_t n_heard = 0;              // generated tokens that a committed pass has told of
  std::span<const int32_t> fresh{};  // those behind them: told again where a pass did not commit
};

// Its rows in a pass: masks[first_row + i] is for what may come behind the first i drafted tokens.
struct MaskItem {
  HeldText text;
  std::span<const int32_t> drafted{};
  uint32_t first_row = 0;
};

// Bit id % 32 of word id / 32 is set where an id may be chosen.
struct MaskTable {
  uint32_t* words = nullptr;
  uint32_t rows = 0;
  uint32_t row_words = 0;

  [[nodiscard]] std::span<uint32_t> row(uint32_t index) const {
    return {words + size_t{index} * row_words, row_words};
  }
};

// Writes every bit of the rows of all items; returns of each why its text cannot go on, or null.
// Throws where a pass cannot go on, which is then made once more.
using FillMasks =
    std::function<std::vector<std::exception_ptr>(std::span<const MaskItem>, const MaskTable&)>;

// What FillMasks threw.
struct MasksFailed {
  std::exception_ptr error;
};

}  // namespace mtlqwen
