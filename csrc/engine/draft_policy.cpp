#include "engine/draft_policy.hpp"

#include <algorithm>
#include <bit>
#include <numeric>
#include <utility>

namespace mtlqwen {

namespace {

constexpr double kMargin = 1.02;  // drafts must promise so much against plain decoding
// The best of many estimates is more likely than others one that errs to its favour.
constexpr double kNoiseMargin = 0.3;
constexpr double kExploration = 0.01;  // of the time
constexpr double kWinnings = 0.07;     // of the time that drafts have saved
constexpr double kMostCredit = 16;     // passes of plain decoding
constexpr double kMostCharge = 4;      // times what a trial was expected to take
constexpr double kOptimism = 0.75;     // what a pass may take that was never measured
constexpr float kMeasured = 2.5F;      // passes that make a time known
constexpr uint32_t kTrialWidth = 2;
constexpr uint32_t kIdleDrafter = 4;  // passes until it is tried
constexpr uint32_t kIdleSequence = 4;
constexpr uint32_t kMostTrials = 8;     // doublings of kIdleDrafter for drafters that keep failing
constexpr double kPatience = 2;         // times what a context costs, until it is made whole
constexpr double kSettlingRow = 0.01;   // of plain decoding, each row of a context
constexpr double kSettlingWeight = 64;  // rows that this prior counts for
constexpr double kKeepSettling = 0.98;  // of what was seen before
constexpr float kDevicePrior = 0.8F;
constexpr std::array<float, kMatchClasses> kNgramPrior = {0.5F, 0.75F, 0.9F};

uint32_t class_of(uint32_t match_length) { return match_length < 4 ? 0 : match_length < 8 ? 1 : 2; }

size_t crowd_of(size_t n_sequences) {
  return std::min<size_t>(static_cast<size_t>(std::bit_width(n_sequences - 1)), 5);
}

bool is_device(DrafterKind kind) {
  return kind == DrafterKind::kMtp || kind == DrafterKind::kDflash;
}

// Expected of all the proposals that it may get.
double accepted_of(const WidthCandidate& candidate) {
  return std::accumulate(candidate.chain.begin(), candidate.chain.begin() + candidate.most, 0.0);
}

}  // namespace

DecodeShape shape_of(std::span<const DraftChoice> choices) {
  DecodeShape shape{.n_sequences = static_cast<uint32_t>(choices.size())};
  shape.rows = shape.n_sequences;
  for (const DraftChoice& choice : choices) {
    shape.rows += choice.width;
    if (!is_device(choice.kind)) continue;
    shape.kind = choice.kind;
    shape.steps = std::max(shape.steps, choice.width);
  }
  return shape;
}

std::vector<DraftChoice> DraftPolicy::choices_of(const Plan& plan) {
  std::vector<DraftChoice> choices;
  for (size_t i = 0; i < plan.kinds.size(); ++i) {
    const uint32_t width = plan.widths.widths[i];
    choices.push_back({.kind = width > 0 ? plan.kinds[i] : DrafterKind::kNone, .width = width});
  }
  return choices;
}

DraftPolicy::DraftPolicy(std::vector<DraftOption> drafters, const PassCostPrior& prior)
    : options_(std::move(drafters)), cost_(prior), mtp_(kDevicePrior), dflash_(kDevicePrior),
      ngram_{AcceptanceProfile(kNgramPrior[0]), AcceptanceProfile(kNgramPrior[1]),
             AcceptanceProfile(kNgramPrior[2])} {
  has_ngram_ = std::ranges::any_of(
      options_, [](const DraftOption& option) { return option.kind == DrafterKind::kNgram; });
  options_.insert(options_.begin(), DraftOption{});
}

Chain DraftPolicy::chain_of(const DraftCandidate& candidate, DrafterKind kind) const {
  const uint32_t match = class_of(candidate.match_length);
  switch (kind) {
  case DrafterKind::kNone:
    break;
  case DrafterKind::kNgram:
    return candidate.history->ngram[match].chain(ngram_[match]);
  case DrafterKind::kMtp:
    return candidate.history->mtp.chain(mtp_);
  case DrafterKind::kDflash:
    return candidate.history->dflash.chain(dflash_);
  }
  return {};
}

// Each candidate's drafter under an option. Without a match there is no proposal of n-grams.
DraftPolicy::Plan DraftPolicy::assign(const DraftOption& option, const Pass& pass,
                                      bool match_first) const {
  Plan plan;
  plan.option = option.kind;
  plan.steps = option.most;
  for (const DraftCandidate& candidate : pass.candidates) {
    DrafterKind kind = option.kind;
    const uint32_t most = std::min(candidate.most, kMostWidth);
    WidthCandidate chosen{};
    const bool waits = !pass.waits.empty() && pass.waits[plan.kinds.size()];
    if (is_device(kind) && !waits) {
      chosen = {.chain = chain_of(candidate, kind), .most = std::min(most, option.most)};
    }
    if (match_first && candidate.match_length > 0) {
      const WidthCandidate match{.chain = chain_of(candidate, DrafterKind::kNgram), .most = most};
      if (accepted_of(match) > accepted_of(chosen)) {
        chosen = match;
        kind = DrafterKind::kNgram;
      }
    }
    plan.kinds.push_back(kind);
    plan.candidates.push_back(chosen);
  }
  return plan;
}

// Seconds by the number of proposals.
std::vector<double> DraftPolicy::curve(const Plan& plan, const Pass& pass) const {
  const auto n = static_cast<uint32_t>(pass.candidates.size());
  uint32_t rows = n;
  for (const WidthCandidate& candidate : plan.candidates) rows += candidate.most;
  return cost_.curve({.kind = plan.option, .n_sequences = n, .rows = n, .steps = plan.steps},
                     std::min(rows, pass.most_rows));
}

// The best widths under an option. MTP's time depends on its longest draft, too: each is tried.
DraftPolicy::Plan DraftPolicy::best_of(const DraftOption& option, const Pass& pass) const {
  Plan plan = assign(option, pass, has_ngram_ && option.kind != DrafterKind::kNone);
  if (option.kind != DrafterKind::kMtp) {
    plan.widths = choose_widths(plan.candidates, curve(plan, pass));
    return plan;
  }
  const std::vector<WidthCandidate> all = plan.candidates;
  Plan best;
  for (plan.steps = 1; plan.steps <= option.most; ++plan.steps) {
    for (size_t i = 0; i < all.size(); ++i) {
      const bool device = is_device(plan.kinds[i]);
      plan.candidates[i].most = device ? std::min(all[i].most, plan.steps) : all[i].most;
    }
    plan.widths = choose_widths(plan.candidates, curve(plan, pass));
    if (best.kinds.empty() || plan.widths.rate() > best.widths.rate()) best = plan;
  }
  return best;
}

// Gives candidates without a draft one of kTrialWidth, if they had none for so many passes.
void DraftPolicy::widen(Plan& plan, const Pass& pass, uint32_t idle) const {
  const auto n = static_cast<uint32_t>(pass.candidates.size());
  WidthPlan& widths = plan.widths;
  for (size_t i = 0; i < n; ++i) {
    if (widths.widths[i] > 0 || pass.candidates[i].history->idle < idle) continue;
    const uint32_t most = std::min(plan.candidates[i].most, kTrialWidth);
    while (widths.widths[i] < most && n + widths.drafted < pass.most_rows) {
      widths.tokens += double{plan.candidates[i].chain[widths.widths[i]]};
      ++widths.widths[i];
      ++widths.drafted;
    }
  }
  widths.seconds = cost_.estimate(shape_of(choices_of(plan)));
}

// A drafter, or plain decoding, that was not used for long; the less often the more often it failed.
std::optional<DraftPolicy::Plan> DraftPolicy::idle_drafter(const Plan& best,
                                                           const Pass& pass) const {
  const size_t crowd = crowd_of(pass.candidates.size());
  for (const DraftOption& option : options_) {
    const Idle& idle = idle_[static_cast<size_t>(option.kind)][crowd];
    if (option.kind == best.option || idle.passes < kIdleDrafter
                                                        << std::min(idle.trials, kMostTrials)) {
      continue;
    }
    Plan plan = assign(option, pass, option.kind == DrafterKind::kNgram);
    plan.widths = choose_widths(plan.candidates, curve(plan, pass));
    if (option.kind != DrafterKind::kNone) widen(plan, pass, 0);
    if (option.kind == DrafterKind::kNone || plan.widths.drafted > 0) return plan;
  }
  return std::nullopt;
}

// Widths that would be the best ones if their pass took less than is expected of it.
std::optional<DraftPolicy::Plan>
DraftPolicy::unknown_time(std::span<const Plan> plans, const Plan& best, const Pass& pass) const {
  for (const Plan& plan : plans) {
    Plan hopeful = plan;
    const std::vector<double> seconds = curve(plan, pass);
    std::vector<double> hoped = seconds;
    DecodeShape shape{.kind = plan.option,
                      .n_sequences = static_cast<uint32_t>(pass.candidates.size()),
                      .steps = plan.steps};
    for (size_t i = 1; i < hoped.size(); ++i) {
      shape.rows = shape.n_sequences + static_cast<uint32_t>(i);
      if (cost_.n_measured(shape) < kMeasured) hoped[i] *= kOptimism;
    }
    hopeful.widths = choose_widths(plan.candidates, hoped);
    const uint32_t drafted = hopeful.widths.drafted;
    if (hoped[drafted] == seconds[drafted]) continue;
    if (hopeful.widths.rate() <= best.widths.rate()) continue;
    hopeful.widths.seconds = seconds[drafted];
    return hopeful;
  }
  return std::nullopt;
}

// Drafts for sequences that had none for long, by the drafter in use or else by the most idle one.
std::optional<DraftPolicy::Plan>
DraftPolicy::idle_sequences(std::span<const Plan> plans, const Plan& best, const Pass& pass) const {
  Plan plan = best;
  if (best.option == DrafterKind::kNone) {
    const size_t crowd = crowd_of(pass.candidates.size());
    const auto idle = [&](const Plan& of) {
      return of.option == DrafterKind::kNone ? 0
                                             : idle_[static_cast<size_t>(of.option)][crowd].passes;
    };
    plan = *std::ranges::max_element(plans, {}, idle);
    plan.widths.widths.assign(pass.candidates.size(), 0);
    plan.widths.drafted = 0;
    plan.widths.tokens = best.widths.tokens;
  }
  const uint32_t drafted = plan.widths.drafted;
  widen(plan, pass, kIdleSequence);
  if (plan.widths.drafted == drafted) return std::nullopt;
  return plan;
}

// Whether the trial's loss, tokens that the best plan would give in its time, can be afforded.
bool DraftPolicy::begin_trial(const Plan& trial, double rate, const Pass& pass) {
  const WidthPlan& widths = trial.widths;
  double seconds = widths.seconds;
  for (size_t i = 0; i < trial.kinds.size(); ++i) {
    if (widths.widths[i] > 0 && is_device(trial.kinds[i]))
      seconds += settling_seconds(pass.candidates[i]);
  }
  if (seconds - widths.tokens / rate > credit_) return false;
  trial_rate_ = rate;
  trial_charge_ = kMostCharge * seconds;
  return true;
}

void DraftPolicy::count_idle(const Plan& chosen, const Pass& pass) {
  const size_t crowd = crowd_of(pass.candidates.size());
  const std::vector<DraftChoice> choices = choices_of(chosen);
  for (const DraftOption& option : options_) {
    Idle& idle = idle_[static_cast<size_t>(option.kind)][crowd];
    const bool used = option.kind == DrafterKind::kNone
                          ? chosen.widths.drafted == 0
                          : std::ranges::any_of(choices, [&](const DraftChoice& choice) {
                              return choice.kind == option.kind;
                            });
    idle.passes = used ? 0 : idle.passes + 1;
  }
}

std::vector<DraftPolicy::Plan> DraftPolicy::plans_of(const Pass& pass) const {
  std::vector<Plan> plans;
  for (const DraftOption& option : options_) plans.push_back(best_of(option, pass));
  return plans;
}

// The one that promises most; the first, without drafts, where none promises enough.
DraftPolicy::Plan DraftPolicy::best_plan(std::span<const Plan> plans) const {
  const Plan* best = &plans.front();
  double least = (kMargin + kNoiseMargin * cost_.noise()) * best->widths.rate();
  for (const Plan& plan : plans) {
    if (plan.widths.rate() <= least) continue;
    least = plan.widths.rate();
    best = &plan;
  }
  return *best;
}

// To make a candidate's context whole, beyond the rows of its last draft.
double DraftPolicy::settling_seconds(const DraftCandidate& candidate) const {
  if (candidate.unsettled <= 1 + kMostWidth) return 0;
  const double plain = cost_.estimate({.n_sequences = 1, .rows = 1});
  const double row = (settled_seconds_ + kSettlingWeight * kSettlingRow * plain) /
                     (settled_rows_ + kSettlingWeight);
  return row * (candidate.unsettled - 1 - kMostWidth);
}

// Shares out what the plan saves against plain decoding, `rate` tokens a second, among those that it
// drafts for; true for each of them that has not yet forgone what its context costs.
std::vector<bool> DraftPolicy::earn(const Plan& plan, double rate, const Pass& pass) const {
  std::vector<bool> waits(plan.kinds.size());
  const WidthPlan& widths = plan.widths;
  const double accepted = widths.tokens - static_cast<double>(plan.kinds.size());
  const double saved = std::max(widths.tokens / rate - widths.seconds, 0.0);
  for (size_t i = 0; i < plan.kinds.size(); ++i) {
    if (widths.widths[i] == 0 || !is_device(plan.kinds[i])) continue;
    const Chain& chain = plan.candidates[i].chain;
    const double own = std::accumulate(chain.begin(), chain.begin() + widths.widths[i], 0.0);
    DraftHistory& history = *pass.candidates[i].history;
    history.forgone += saved * own / accepted;
    waits[i] = history.forgone < kPatience * settling_seconds(pass.candidates[i]);
  }
  return waits;
}

std::vector<DraftChoice> DraftPolicy::choose(std::span<const DraftCandidate> candidates,
                                             uint32_t most_rows) {
  // Before plain decoding was measured, nothing can be said to pay.
  if (!cost_.measured()) return std::vector<DraftChoice>(candidates.size());
  const Pass pass{.candidates = candidates, .most_rows = most_rows};
  const std::vector<Plan> plans = plans_of(pass);
  Plan chosen = best_plan(plans);
  const std::vector<bool> waits = earn(chosen, plans.front().widths.rate(), pass);
  if (std::ranges::find(waits, true) != waits.end()) {
    chosen =
        best_plan(plans_of({.candidates = candidates, .most_rows = most_rows, .waits = waits}));
  }
  const size_t crowd = crowd_of(candidates.size());
  idle_[static_cast<size_t>(chosen.option)][crowd].trials = 0;

  trial_rate_ = 0;
  trial_ = nullptr;
  std::optional<Plan> trial = idle_drafter(chosen, pass);
  const bool drafter = trial.has_value();
  if (!trial) trial = unknown_time(plans, chosen, pass);
  if (!trial) trial = idle_sequences(plans, chosen, pass);
  if (trial && begin_trial(*trial, chosen.widths.rate(), pass)) {
    if (drafter) {
      trial_ = &idle_[static_cast<size_t>(trial->option)][crowd];
      ++trial_->trials;
    }
    chosen = std::move(*trial);
  }
  count_idle(chosen, pass);
  return choices_of(chosen);
}

void DraftPolicy::observe_draft(DraftHistory& history, const DraftChoice& choice,
                                uint32_t match_length, uint32_t accepted) {
  history.idle = choice.width > 0 ? 0 : history.idle + 1;
  if (choice.width > 0 && is_device(choice.kind)) history.forgone = 0;
  const auto observe = [&](Acceptance& acceptance, AcceptanceProfile& profile, bool drafted) {
    acceptance.observe(profile, drafted ? choice.width : 0, accepted);
    if (drafted) profile.observe(choice.width, accepted);
  };
  observe(history.mtp, mtp_, choice.kind == DrafterKind::kMtp);
  observe(history.dflash, dflash_, choice.kind == DrafterKind::kDflash);
  for (uint32_t i = 0; i < kMatchClasses; ++i) {
    observe(history.ngram[i], ngram_[i],
            choice.kind == DrafterKind::kNgram && class_of(match_length) == i);
  }
}

void DraftPolicy::observe_settling(uint32_t rows, double seconds) {
  settled_rows_ = kKeepSettling * settled_rows_ + rows;
  settled_seconds_ = kKeepSettling * settled_seconds_ + seconds;
}

void DraftPolicy::observe_pass(const DecodeShape& shape, double seconds, uint32_t tokens,
                               double settled_s) {
  if (trial_rate_ > 0) {
    const double lost = seconds + settled_s - tokens / trial_rate_;
    credit_ -= std::clamp(lost, 0.0, trial_charge_);
    if (trial_ != nullptr && lost <= 0) trial_->trials = 0;
  }
  trial_rate_ = 0;
  cost_.observe(shape, seconds);
  const double plain =
      cost_.estimate({.n_sequences = shape.n_sequences, .rows = shape.n_sequences});
  const double saved = plain * tokens / shape.n_sequences - seconds - settled_s;
  credit_ += kExploration * seconds + kWinnings * std::max(saved, 0.0);
  credit_ = std::min(credit_, kMostCredit * plain);
}

}  // namespace mtlqwen
