// How many proposals of a drafter the target will accept, learned from how many it did.
#pragma once
#include <array>
#include <cstdint>

#include "base/types.hpp"

namespace mtlqwen {

// [i]: probability that the first i + 1 proposals are all accepted; never rises with i.
using Chain = std::array<float, kMostWidth>;

// By place in a draft: how often a proposal was reached (all before it were accepted), and how
// often it was then accepted itself. Older passes weigh less.
class DraftTally {
 public:
  void add(uint32_t width, uint32_t accepted, float keep);
  // Of the place, where `prior` counts as `weight` passes.
  [[nodiscard]] float share(uint32_t place, float prior, float weight) const {
    return (accepted_[place] + weight * prior) / (reached_[place] + weight);
  }

 private:
  std::array<float, kMostWidth> reached_{};
  std::array<float, kMostWidth> accepted_{};
};

// One drafter's acceptance over all sequences of an engine: what a new sequence is taken to be like.
// A place that was drafted little is taken to be like the one before it.
class AcceptanceProfile {
 public:
  // Probability at the first place before anything was seen.
  explicit AcceptanceProfile(float prior) : prior_(prior) {}
  void observe(uint32_t width, uint32_t accepted);
  // [i]: probability that proposal i is accepted, given that those before it were.
  [[nodiscard]] std::array<float, kMostWidth> conditionals() const;

 private:
  float prior_;
  DraftTally tally_;
};

// The same for one sequence. It differs from the profile by one factor of all hazards of rejection,
// which is learned in a few passes and speaks for places never drafted, and by its own tally where
// it has one. Text changes all at once, from prose to a copied table: what a sequence has learned
// goes by the probability that such a change explains the pass better, and the more readily the
// longer nothing was drafted.
class Acceptance {
 public:
  // A decode pass of the sequence: what this drafter drafted for it, width 0 included. Before
  // profile.observe() of the same pass.
  void observe(const AcceptanceProfile& profile, uint32_t width, uint32_t accepted);
  [[nodiscard]] Chain chain(const AcceptanceProfile& profile) const;

 private:
  DraftTally tally_;
  float rejections_ = 0;
  float hazard_ = 0;   // rejections that the profile would have expected
  uint32_t idle_ = 0;  // passes since the last draft
};

}  // namespace mtlqwen
