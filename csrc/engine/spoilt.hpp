// Rows in which a number is not finite: a damaged model must fail, not talk.
#pragma once
#include <cstdint>
#include <optional>

#include "base/error.hpp"
#include "base/types.hpp"
#include "engine/drafts.hpp"
#include "model/config.hpp"

namespace mtlqwen {

struct Spoilt {
  uint32_t place = 0;     // of the model, see NormArgs; behind the last layer's stands the head
  uint32_t position = 0;  // of the token, in its sequence
};

// The earliest place among the rows that a query keeps: the first `rows`, and of the sampled ones those up to the last
// of them. A proposal that does not hold may be spoilt; nothing is left of it.
[[nodiscard]] std::optional<Spoilt> find_spoilt(const Query& query, uint32_t rows,
                                                const Committed& committed);

[[nodiscard]] DeviceError error_of(const Spoilt& spoilt, const ModelConfig& config);

}  // namespace mtlqwen
