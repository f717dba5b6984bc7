// How many tokens each decoding sequence drafts in a pass, and by which drafter.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "engine/acceptance.hpp"

namespace mtlqwen {

struct WidthCandidate {
  Chain chain{};
  uint32_t most = 0;  // proposals that it may get, at most kMostWidth
};

struct WidthPlan {
  std::vector<uint32_t> widths;
  uint32_t drafted = 0;  // their sum
  double tokens = 0;     // expected of the pass: one a sequence and what is accepted
  double seconds = 0;
  [[nodiscard]] double rate() const { return tokens / seconds; }
};

// The widths that give the most expected tokens a second; seconds[i] is the time of a pass with i
// proposals, and its size bounds them. Exact: chains never rise, so that of any number of proposals
// the best ones are the most probable ones of all sequences, and every number is tried.
[[nodiscard]] WidthPlan choose_widths(std::span<const WidthCandidate> candidates,
                                      std::span<const double> seconds);

}  // namespace mtlqwen
