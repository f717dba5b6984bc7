// Proposals without a model: what followed the last time that the text read as its end does now.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace mtlqwen {

// Tokens that an occurrence must repeat, so many at least; more than so many count as these.
inline constexpr uint32_t kNgramLeast = 2;
inline constexpr uint32_t kNgramMost = 16;
// Occurrences of the last kNgramLeast tokens that a look-up compares, the most recent ones.
inline constexpr uint32_t kNgramLooked = 64;

// Index over prompt and output of one sequence. Appending costs O(1) amortised, a look-up at most
// kNgramLooked * kNgramMost comparisons. Memory: 8 bytes a token, up to twice that where vectors
// have grown, and a table of 2 to 4 entries of 4 bytes a token; 16 to 32 bytes a token together.
class NgramIndex {
 public:
  void append(std::span<const int32_t> tokens);
  [[nodiscard]] uint32_t n_tokens() const { return static_cast<uint32_t>(tokens_.size()); }

  // Tokens that the end of the text shares with its best earlier occurrence, kNgramLeast to
  // kNgramMost; 0: there is none. Best is the longest, of equals the most recent.
  [[nodiscard]] uint32_t match_length() const { return match_length_; }
  // `most` tokens that followed that occurrence; nothing without one. Where the occurrence is so
  // recent that it runs into the end of the text, what it proposed goes on as text.
  [[nodiscard]] std::vector<int32_t> propose(uint32_t most) const;

  [[nodiscard]] size_t bytes() const;

 private:
  void index_last();
  void grow();
  void find_match();
  [[nodiscard]] uint32_t shared_before(uint32_t end) const;
  [[nodiscard]] size_t entry_of(uint32_t end) const;

  // An end is the position behind an occurrence: of tokens_[end - kNgramLeast : end].
  std::vector<int32_t> tokens_;
  std::vector<uint32_t> earlier_;  // by end: the one before it in the same entry; 0: none
  std::vector<uint32_t> latest_;   // by hash: the latest end; 0: none; a power of two of entries
  uint32_t match_length_ = 0;
  uint32_t match_end_ = 0;
};

}  // namespace mtlqwen
