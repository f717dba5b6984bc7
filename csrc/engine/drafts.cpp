// Engine: who drafts how much, and what becomes of it.
#include "engine/drafts.hpp"

#include <algorithm>
#include <utility>

#include "engine/boundaries.hpp"
#include "engine/engine.hpp"
#include "engine/runtime.hpp"

namespace mtlqwen {

uint32_t bank_behind(const Query& query, uint32_t rows) {
  if (query.taped) return query.writes.back().bank;
  return std::ranges::find(query.writes, rows, &StateWrite::rows)->bank;
}

void drop_draft(Query& query) {
  query.count -= query.width;
  query.width = 0;
  query.proposals.clear();
  query.taped = false;
  query.writes.resize(1);
  query.writes.front().rows = query.count;
}

// Proposals that a sequence may have: none behind a token that ends it, and none across a boundary, whose state has to be
// kept.
uint32_t Engine::most_drafted_locked(const Sequence& sequence) const {
  if (sequence.pending() != 1 || sequence.kv_valid == 0) return 0;
  if (sequence.options.stop_ids.size() > kMostStops) return 0;
  const auto n_tokens = static_cast<uint32_t>(sequence.request.size());
  uint32_t most = std::min({kMostWidth, context_ - n_tokens - 1,
                            sequence.options.max_tokens - sequence.n_completion() - 1});
  // The token that the end of its thinking takes the place of can only be the last of a pass.
  if (sequence.thinks()) {
    most = std::min(most, sequence.options.thinking->n_tokens - sequence.n_completion());
  }
  if (!runtime_->cache.is_on()) return most;
  const std::vector<uint32_t> next =
      boundaries_between(sequence.boundaries, checkpoint_interval_, sequence.kv_valid,
                         sequence.kv_valid + 1 + most, 1);
  return next.empty() ? most : next.front() - sequence.kv_valid - 1;
}

// One for each live sequence; those that do not decode have none. Beside a prompt nobody drafts: rows are all but free where a
// pass waits for memory, and one that is full of them does not.
std::vector<Draft> Engine::plan_drafts_locked(std::span<Sequence* const> live) {
  std::vector<Draft> drafts(live.size());
  if (!policy_) return drafts;
  std::vector<DraftCandidate> candidates;
  std::vector<size_t> places;
  for (size_t i = 0; i < live.size(); ++i) {
    Sequence& sequence = *live[i];
    if (sequence.pending() != 1) continue;
    places.push_back(i);
    candidates.push_back({.history = &sequence.history,
                          .match_length = match_locked(sequence),
                          .most = most_drafted_locked(sequence),
                          .unsettled = runtime_->forward.n_unsettled(*sequence.slot)});
  }
  if (candidates.empty()) return drafts;
  const auto n_prefills = static_cast<uint32_t>(live.size() - candidates.size());
  const uint32_t rows = std::min(kSampledRows, pass_rows_) - n_prefills;
  std::vector<DraftChoice> choices(candidates.size());
  if (n_prefills == 0 && !forced_width_) choices = policy_->choose(candidates, rows);
  uint32_t left = rows - static_cast<uint32_t>(candidates.size());
  for (size_t i = 0; i < candidates.size(); ++i) {
    Sequence& sequence = *live[places[i]];
    Draft& draft = drafts[places[i]];
    if (forced_width_ || !sequence.forced_draft.empty()) {
      draft = forced_draft_locked(sequence, std::min(candidates[i].most, left));
    } else {
      draft = {.choice = choices[i]};
      draft.choice.width = std::min(draft.choice.width, left);
      if (draft.choice.kind == DrafterKind::kNgram) {
        draft.proposals = sequence.ngram.propose(draft.choice.width);
      }
    }
    left -= draft.choice.width;
  }
  return drafts;
}

// What a test asks for, as far as the pass has room for it.
Draft Engine::forced_draft_locked(Sequence& sequence, uint32_t most) {
  Draft draft{.proposals = std::exchange(sequence.forced_draft, {})};
  if (draft.proposals.empty() && forced_width_) {
    draft.choice = {.kind = runtime_->drafter_kind,
                    .width = std::min({*forced_width_, most, runtime_->most_width()})};
    if (draft.choice.kind != DrafterKind::kNgram) return draft;
    draft.proposals = sequence.ngram.propose(draft.choice.width);
  }
  draft.proposals.resize(std::min<size_t>(draft.proposals.size(), most));
  draft.choice = {.kind = DrafterKind::kNgram,
                  .width = static_cast<uint32_t>(draft.proposals.size())};
  return draft;
}

// Tokens that the end of the sequence's text repeats.
uint32_t Engine::match_locked(Sequence& sequence) const {
  if (!has_ngram_) return 0;
  sequence.ngram.append(std::span(sequence.request).subspan(sequence.ngram.n_tokens()));
  return sequence.ngram.match_length();
}

// How many of a decoding query's proposals hold. The match is that of when it was planned: nothing has been added since.
uint32_t Engine::commit_draft_locked(Sequence& sequence, const Query& query, Committed& committed) {
  const uint32_t accepted = query.width > 0 ? accepted_locked(sequence, query, committed) : 0;
  if (!policy_) return accepted;
  const DrafterKind kind = query.width == 0          ? DrafterKind::kNone
                           : query.proposals.empty() ? runtime_->drafter_kind
                                                     : DrafterKind::kNgram;
  const DraftChoice choice{.kind = kind, .width = query.width};
  policy_->observe_draft(sequence.history, choice, sequence.ngram.match_length(), accepted);
  committed.decoded.choices.push_back(choice);
  committed.decoded.n_accepted += accepted;
  return accepted;
}

uint32_t Engine::accepted_locked(Sequence& sequence, const Query& query, Committed& committed) {
  const PassResult& result = committed.result;
  const std::span<const int32_t> proposals =
      result.input_ids.subspan(query.first_row + 1, query.width);
  const uint32_t accepted = result.accepted[committed.n_drafts++];
  sequence.last_draft.assign(proposals.begin(), proposals.end());
  ++sequence.drafts.passes;
  sequence.drafts.drafted += query.width;
  sequence.drafts.accepted += accepted;
  ++stats_.draft_passes;
  stats_.drafted_tokens += query.width;
  stats_.accepted_tokens += accepted;
  return accepted;
}

void Engine::propose(SequenceId id, std::vector<int32_t> token_ids) {
  const std::lock_guard lock(mutex_);
  require_open_locked();
  find_locked(id).forced_draft = std::move(token_ids);
}

void Engine::force_width(std::optional<uint32_t> width) {
  const std::lock_guard lock(mutex_);
  forced_width_ = width;
}

std::vector<int32_t> Engine::last_draft(SequenceId id) {
  const std::lock_guard lock(mutex_);
  require_open_locked();
  return find_locked(id).last_draft;
}

}  // namespace mtlqwen
