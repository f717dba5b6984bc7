// Who runs, and with how many rows of a pass. Pure functions: no device, no clock, no state.
#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace mtlqwen {

// A sequence in the waiting line, by arrival. Each time a later one is admitted before it, it has been passed over once more.
struct Waiting {
  int32_t priority = 0;
  uint32_t passed_over = 0;
};

// So many times passed over weigh as much as one step of priority: nobody waits forever.
inline constexpr uint32_t kPassesPerPriority = 8;

// Index of the next to be admitted: the highest priority, aged by how often it was passed over; of equals the earliest.
// Nothing where nobody waits.
[[nodiscard]] std::optional<size_t> choose_next(std::span<const Waiting> line);

// What a live sequence wants of a pass.
struct RowWish {
  uint32_t pending = 1;  // tokens, > 0; 1: it decodes
  uint32_t width = 0;    // of its draft, where it decodes
  // Of the rows of its pending tokens, those that get logits since the prompt's tokens are told.
  uint32_t first_told = 0;
  uint32_t n_told = 0;
};

// Rows for each live sequence, in order of arrival. A decoding one gets 1 + width, any other at least one. What is left of
// `rows` is shared equally by the prefilling ones, none getting more than it has pending, odd rows going to the earliest.
// While anybody decodes, the prefilling ones together get no more than `prefill_rows` (but one each).
// Precondition: wishes.size() + all widths <= rows.
[[nodiscard]] std::vector<uint32_t> plan_rows(std::span<const RowWish> wishes, uint32_t rows,
                                              uint32_t prefill_rows);

// Cuts the counts of those that are told tokens, so that all together have at most `logit_rows` rows with logits: what is left
// of them beside one for each sequence, and its width, is shared equally. Precondition: wishes.size() + all widths <= logit_rows.
void limit_told(std::span<const RowWish> wishes, uint32_t logit_rows,
                std::vector<uint32_t>& counts);

}  // namespace mtlqwen
