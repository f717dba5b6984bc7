#include "model/logit_edits.hpp"

#include <algorithm>

namespace mtlqwen {

LogitEdits::LogitEdits(const EditOptions& options, std::span<const int32_t> stop_ids,
                       uint32_t n_valid)
    : presence_(options.presence), frequency_(options.frequency), repetition_(options.repetition),
      penalises_(presence_ != 0.0F || frequency_ != 0.0F || repetition_ != 1.0F),
      min_tokens_(options.min_tokens) {
  for (const auto& [id, bias] : options.biases) entry_of(id).bias += bias;
  if (min_tokens_ > 0) {
    for (const int32_t id : stop_ids) entry_of(id).is_stop = 1;
  }
  add_words(options.bad_words);
  n_lasting_ = static_cast<uint32_t>(entries_.size());
  if (options.allowed.empty()) return;
  mask_.resize(mask_words(n_valid));
  for (const int32_t id : options.allowed) {
    mask_[static_cast<uint32_t>(id) / 32] |= 1U << (static_cast<uint32_t>(id) % 32);
  }
}

// Those that end with one token stand together.
void LogitEdits::add_words(const std::vector<std::vector<int32_t>>& words) {
  std::vector<const std::vector<int32_t>*> sorted;
  for (const std::vector<int32_t>& word : words) sorted.push_back(&word);
  std::ranges::stable_sort(sorted, {},
                           [](const std::vector<int32_t>* word) { return word->back(); });
  for (const std::vector<int32_t>* word : sorted) {
    TokenEdit& entry = entry_of(word->back());
    if (entry.n_words++ == 0) entry.first_word = static_cast<uint32_t>(words_.size());
    const auto n = static_cast<uint32_t>(word->size() - 1);
    words_.push_back({.first = static_cast<uint32_t>(word_tokens_.size()), .n = n});
    word_tokens_.insert(word_tokens_.end(), word->begin(), word->end() - 1);
    longest_word_ = std::max(longest_word_, n);
  }
}

TokenEdit& LogitEdits::entry_of(int32_t id) {
  const auto wanted = static_cast<uint32_t>(id);
  const auto found = std::ranges::lower_bound(entries_, wanted, {}, &TokenEdit::id);
  if (found != entries_.end() && found->id == wanted) return *found;
  return *entries_.insert(
      found, {.id = wanted, .count = 0, .bias = 0.0F, .first_word = 0, .n_words = 0, .is_stop = 0});
}

void LogitEdits::count(int32_t id) {
  if (penalises_) ++entry_of(id).count;
}

bool LogitEdits::edits(uint32_t n_generated) const {
  return penalises_ || n_lasting_ > 0 || forbids_stops(n_generated);
}

EditArgs LogitEdits::args(uint32_t n_generated) const {
  return {.row = 0,
          .first_entry = 0,
          .n_entries = static_cast<uint32_t>(entries_.size()),
          .first_input = 0,
          .n_drafted = 0,
          .first_saved = 0,
          .first_tail = 0,
          .n_tail = 0,
          .presence = presence_,
          .frequency = frequency_,
          .repetition = repetition_,
          .forbid_stops = forbids_stops(n_generated) ? 1U : 0U,
          .reserved = {}};
}

}  // namespace mtlqwen
