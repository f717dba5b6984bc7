#include "engine/acceptance.hpp"

#include <algorithm>
#include <cmath>

namespace mtlqwen {

namespace {

// A pass counts 1 / (1 - keep) passes long: the engine forgets slowly, a sequence follows its text.
constexpr float kKeepProfile = 0.998F;
constexpr float kKeepSequence = 0.985F;
constexpr float kChange = 0.02F;  // probability of a change of text, a pass
// Passes that a prior counts for.
constexpr float kProfileWeight = 8.0F;
constexpr float kPlaceWeight = 6.0F;
constexpr float kHazardWeight = 2.0F;
constexpr float kLeast = 0.02F;  // nothing is certain: bounds of a conditional probability
constexpr float kMost = 0.998F;

// Probability of exactly `accepted` of `width`, where at_least(i) is that of i or more.
template <typename AtLeast>
float probability(const AtLeast& at_least, uint32_t width, uint32_t accepted) {
  return at_least(accepted) - (accepted < width ? at_least(accepted + 1) : 0.0F);
}

}  // namespace

void DraftTally::add(uint32_t width, uint32_t accepted, float keep) {
  for (float& count : reached_) count *= keep;
  for (float& count : accepted_) count *= keep;
  for (uint32_t i = 0; i < std::min(width, accepted + 1); ++i) ++reached_[i];
  for (uint32_t i = 0; i < accepted; ++i) ++accepted_[i];
}

void AcceptanceProfile::observe(uint32_t width, uint32_t accepted) {
  tally_.add(width, accepted, kKeepProfile);
}

std::array<float, kMostWidth> AcceptanceProfile::conditionals() const {
  std::array<float, kMostWidth> conditionals{};
  float prior = prior_;
  for (uint32_t i = 0; i < kMostWidth; ++i) {
    prior = std::clamp(tally_.share(i, prior, kProfileWeight), kLeast, kMost);
    conditionals[i] = prior;
  }
  return conditionals;
}

void Acceptance::observe(const AcceptanceProfile& profile, uint32_t width, uint32_t accepted) {
  if (width == 0) {
    ++idle_;
    return;
  }
  const std::array<float, kMostWidth> conditionals = profile.conditionals();
  std::array<float, kMostWidth + 1> hazard{};  // [i]: of the first i proposals
  for (uint32_t i = 0; i < width; ++i) {
    hazard[i + 1] = hazard[i] - std::log(conditionals[i]);
  }
  const Chain known = chain(profile);
  const float as_before =
      probability([&](uint32_t i) { return i == 0 ? 1.0F : known[i - 1]; }, width, accepted);
  // Of a text not known yet the factor may be anything: the mean over its prior, a gamma law.
  const float as_new = probability(
      [&](uint32_t i) {
        return std::pow(kHazardWeight / (kHazardWeight + hazard[i]), kHazardWeight);
      },
      width, accepted);
  const float change = 1 - std::pow(1 - kChange, static_cast<float>(idle_ + 1));
  const float old = (1 - change) * as_before;
  const float keep = kKeepSequence * old / (old + change * as_new);
  tally_.add(width, accepted, keep);
  rejections_ = rejections_ * keep + (accepted < width ? 1.0F : 0.0F);
  hazard_ = hazard_ * keep + hazard[accepted];
  if (accepted < width) {
    // Of the place that was not survived only a part, such that a factor of 1 explains itself.
    const float last = hazard[accepted + 1] - hazard[accepted];
    hazard_ += 1 - last / std::expm1(last);
  }
  idle_ = 0;
}

Chain Acceptance::chain(const AcceptanceProfile& profile) const {
  // Mean of the factor: rejections are Poisson of the hazard, its prior is a gamma law of mean 1.
  const float factor = (kHazardWeight + rejections_) / (kHazardWeight + hazard_);
  const std::array<float, kMostWidth> conditionals = profile.conditionals();
  Chain chain{};
  float all = 1.0F;
  for (uint32_t i = 0; i < kMostWidth; ++i) {
    const float prior = std::pow(conditionals[i], factor);
    all *= std::clamp(tally_.share(i, prior, kPlaceWeight), kLeast, kMost);
    chain[i] = all;
  }
  return chain;
}

}  // namespace mtlqwen
