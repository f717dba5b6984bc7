// Who drafts in a pass, and how much: what was learned, and what is tried to learn more.
#pragma once
#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "engine/acceptance.hpp"
#include "engine/draft_width.hpp"
#include "engine/pass_cost.hpp"

namespace mtlqwen {

// What a sequence remembers of its drafts.
inline constexpr uint32_t kMatchClasses = 3;  // n-gram matches of 2-3, 4-7 and more tokens
struct DraftHistory {
  Acceptance mtp;
  Acceptance dflash;
  std::array<Acceptance, kMatchClasses> ngram;
  uint32_t idle = 0;  // decode passes since its last draft
  // Seconds that drafts would have saved since the last one by a drafter on the device.
  double forgone = 0;
};

// A drafter that the engine may use; `most`: proposals, at most kMostWidth.
struct DraftOption {
  DrafterKind kind = DrafterKind::kNone;
  uint32_t most = 0;
};

// A sequence that decodes in the pass to come.
struct DraftCandidate {
  DraftHistory* history = nullptr;
  uint32_t match_length = 0;  // of its NgramIndex
  uint32_t most = 0;          // tokens that it may still want behind the next one
  uint32_t unsettled = 0;     // rows that its drafter's context lacks
};

struct DraftChoice {
  DrafterKind kind = DrafterKind::kNone;  // kNone where the width is 0
  uint32_t width = 0;
};

// What a pass of these choices is to PassCost.
[[nodiscard]] DecodeShape shape_of(std::span<const DraftChoice> choices);

// Drafts only where they promise more tokens a second than plain decoding, by a margin that grows
// with the noise of the times. Now and then it tries what does not pay as far as it knows: a drafter
// (or plain decoding) not used for long, a width whose time it never measured, drafts of a sequence
// that stopped drafting. Trials lose at most kExploration of the time and kWinnings of what drafts
// have saved, and kMostCredit passes at once. A context that was put off is made whole once drafts
// would have saved kPatience times what that costs: a text that ends before pays nothing, one that
// goes on has lost as much. No clock, no chance: the same calls give the same choices. Not thread safe.
class DraftPolicy {
 public:
  explicit DraftPolicy(std::vector<DraftOption> drafters, const PassCostPrior& prior = {});
  DraftPolicy(const DraftPolicy&) = delete;  // trial_ points into it
  DraftPolicy& operator=(const DraftPolicy&) = delete;

  // One choice a candidate. A pass has one device drafter at most; with kNgram among the drafters,
  // a sequence takes its match instead where that is expected to give more. The rows, one a
  // candidate and one a proposal, do not exceed most_rows.
  // Precondition: 0 < candidates.size() <= most_rows.
  [[nodiscard]] std::vector<DraftChoice> choose(std::span<const DraftCandidate> candidates,
                                                uint32_t most_rows);
  // After the pass, for each sequence of it that decoded, width 0 included.
  void observe_draft(DraftHistory& history, const DraftChoice& choice, uint32_t match_length,
                     uint32_t accepted);
  // After a pass of decoding only: its time, the tokens that it gave, and what it took before to make
  // contexts whole.
  void observe_pass(const DecodeShape& shape, double seconds, uint32_t tokens,
                    double settled_s = 0);
  // Contexts of so many rows were made whole.
  void observe_settling(uint32_t rows, double seconds);

  [[nodiscard]] const PassCost& cost() const { return cost_; }

 private:
  static constexpr uint32_t kKinds = 4;
  static constexpr uint32_t kCrowds = 6;  // as PassCost has them
  struct Plan {
    DrafterKind option = DrafterKind::kNone;
    std::vector<DrafterKind> kinds;          // of each candidate
    std::vector<WidthCandidate> candidates;  // their chains
    uint32_t steps = 0;
    WidthPlan widths;
  };
  struct Idle {
    uint32_t passes = 0;  // since the kind was used
    uint32_t trials = 0;  // since it was the best, or a trial as good as the best
  };
  // Draft choices of one pass to be.
  struct Pass {
    std::span<const DraftCandidate> candidates;
    uint32_t most_rows = 0;
    std::vector<bool> waits{};  // candidates that have not earned their context; none: all have
  };
  [[nodiscard]] static std::vector<DraftChoice> choices_of(const Plan& plan);
  [[nodiscard]] Chain chain_of(const DraftCandidate& candidate, DrafterKind kind) const;
  [[nodiscard]] Plan assign(const DraftOption& option, const Pass& pass, bool match_first) const;
  [[nodiscard]] std::vector<double> curve(const Plan& plan, const Pass& pass) const;
  [[nodiscard]] Plan best_of(const DraftOption& option, const Pass& pass) const;
  void widen(Plan& plan, const Pass& pass, uint32_t idle) const;
  [[nodiscard]] std::optional<Plan> idle_drafter(const Plan& best, const Pass& pass) const;
  [[nodiscard]] std::optional<Plan> unknown_time(std::span<const Plan> plans, const Plan& best,
                                                 const Pass& pass) const;
  [[nodiscard]] std::optional<Plan> idle_sequences(std::span<const Plan> plans, const Plan& best,
                                                   const Pass& pass) const;
  [[nodiscard]] std::vector<Plan> plans_of(const Pass& pass) const;
  [[nodiscard]] Plan best_plan(std::span<const Plan> plans) const;
  [[nodiscard]] double settling_seconds(const DraftCandidate& candidate) const;
  [[nodiscard]] std::vector<bool> earn(const Plan& plan, double rate, const Pass& pass) const;
  [[nodiscard]] bool begin_trial(const Plan& trial, double rate, const Pass& pass);
  void count_idle(const Plan& chosen, const Pass& pass);

  bool has_ngram_ = false;
  std::vector<DraftOption> options_;  // kNone first
  PassCost cost_;
  AcceptanceProfile mtp_;
  AcceptanceProfile dflash_;
  std::array<AcceptanceProfile, kMatchClasses> ngram_;
  std::array<std::array<Idle, kCrowds>, kKinds> idle_{};
  // Rows of contexts that were made whole, and their time; older ones weigh less.
  double settled_rows_ = 0;
  double settled_seconds_ = 0;
  double credit_ = 0;        // seconds that trials may lose
  Idle* trial_ = nullptr;    // of the drafter that the trial under way is about
  double trial_rate_ = 0;    // tokens a second that the trial under way gave up; 0: there is none
  double trial_charge_ = 0;  // seconds that it may be charged at most
};

}  // namespace mtlqwen
