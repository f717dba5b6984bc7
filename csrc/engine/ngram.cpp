#include "engine/ngram.hpp"

#include <algorithm>

namespace mtlqwen {

namespace {

constexpr size_t kFirstEntries = 64;
// Ends that a look-up visits, those of other tokens with the same hash included.
constexpr uint32_t kMostVisited = 4 * kNgramLooked;

}  // namespace

void NgramIndex::append(std::span<const int32_t> tokens) {
  if (tokens.empty()) return;
  // The last end is indexed by the next append: it must not be found as its own occurrence.
  for (const int32_t token : tokens) {
    if (n_tokens() >= kNgramLeast) index_last();
    tokens_.push_back(token);
    earlier_.push_back(0);
  }
  find_match();
}

std::vector<int32_t> NgramIndex::propose(uint32_t most) const {
  std::vector<int32_t> proposals;
  if (match_length_ == 0) return proposals;
  proposals.reserve(most);
  const uint32_t known = n_tokens() - match_end_;  // at least 1
  for (uint32_t i = 0; i < most; ++i) {
    proposals.push_back(i < known ? tokens_[match_end_ + i] : proposals[i - known]);
  }
  return proposals;
}

size_t NgramIndex::bytes() const {
  return tokens_.capacity() * sizeof(int32_t) +
         (earlier_.capacity() + latest_.capacity()) * sizeof(uint32_t);
}

size_t NgramIndex::entry_of(uint32_t end) const {
  uint64_t hash = 0;
  for (uint32_t i = end - kNgramLeast; i < end; ++i) {
    hash = (hash ^ static_cast<uint32_t>(tokens_[i])) * 0x9E3779B97F4A7C15U;
    hash ^= hash >> 29U;
  }
  return static_cast<size_t>(hash) & (latest_.size() - 1);
}

void NgramIndex::index_last() {
  const uint32_t end = n_tokens();
  if (latest_.size() < size_t{2} * end) grow();
  uint32_t& latest = latest_[entry_of(end)];
  earlier_[end - 1] = latest;
  latest = end;
}

void NgramIndex::grow() {
  const size_t entries = std::max(kFirstEntries, latest_.size() * 2);
  latest_.assign(entries, 0);
  for (uint32_t end = kNgramLeast; end < n_tokens(); ++end) {
    uint32_t& latest = latest_[entry_of(end)];
    earlier_[end - 1] = latest;
    latest = end;
  }
}

// Of the tokens before `end` and before the end of the text, the last ones that are the same.
uint32_t NgramIndex::shared_before(uint32_t end) const {
  const uint32_t most = std::min(end, kNgramMost);
  uint32_t shared = 0;
  while (shared < most && tokens_[end - 1 - shared] == tokens_[n_tokens() - 1 - shared]) ++shared;
  return shared;
}

void NgramIndex::find_match() {
  match_length_ = 0;
  if (latest_.empty() || n_tokens() < kNgramLeast) return;
  uint32_t end = latest_[entry_of(n_tokens())];
  uint32_t looked = 0;
  for (uint32_t visited = 0;
       end != 0 && visited < kMostVisited && looked < kNgramLooked && match_length_ < kNgramMost;
       ++visited, end = earlier_[end - 1]) {
    const uint32_t shared = shared_before(end);
    if (shared < kNgramLeast) continue;
    ++looked;
    if (shared <= match_length_) continue;
    match_length_ = shared;
    match_end_ = end;
  }
}

}  // namespace mtlqwen
