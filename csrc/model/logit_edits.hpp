// What a request changes about its logits before a token is chosen: penalties on what it generated,
// biases, forbidden and allowed ids. One a sequence; the kernels get it anew with every pass.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "base/types.hpp"
#include "kernel_args.h"

namespace mtlqwen {

// Of a mask of so many ids, see SampleScanArgs.
[[nodiscard]] constexpr uint32_t mask_words(uint32_t n_valid) { return (n_valid + 127) / 128 * 4; }

class LogitEdits {
 public:
  // stop_ids: that end the text, forbidden before options.min_tokens. n_valid: ids of the model.
  LogitEdits(const EditOptions& options, std::span<const int32_t> stop_ids, uint32_t n_valid);

  // One more of it has been generated.
  void count(int32_t id);

  // Whether anything happens to a row behind n_generated tokens.
  [[nodiscard]] bool edits(uint32_t n_generated) const;
  [[nodiscard]] bool forbids_stops(uint32_t n_generated) const { return n_generated < min_tokens_; }
  // What the args of a row have in common with those of the sequence's other rows.
  [[nodiscard]] EditArgs args(uint32_t n_generated) const;

  // Ascending ids, each once. A word is found by its last token.
  [[nodiscard]] std::span<const TokenEdit> entries() const { return entries_; }
  [[nodiscard]] std::span<const BadWord> words() const { return words_; }
  [[nodiscard]] std::span<const int32_t> word_tokens() const { return word_tokens_; }
  [[nodiscard]] uint32_t longest_word() const { return longest_word_; }  // without its last token
  // A bit an id, set where it may be chosen; empty: all may.
  [[nodiscard]] std::span<const uint32_t> mask() const { return mask_; }

 private:
  TokenEdit& entry_of(int32_t id);
  void add_words(const std::vector<std::vector<int32_t>>& words);

  float presence_;
  float frequency_;
  float repetition_;
  bool penalises_;
  uint32_t min_tokens_;
  std::vector<TokenEdit> entries_;
  uint32_t n_lasting_ = 0;  // entries that matter without a penalty: all but the counted ones
  std::vector<BadWord> words_;
  std::vector<int32_t> word_tokens_;
  uint32_t longest_word_ = 0;
  std::vector<uint32_t> mask_;
};

}  // namespace mtlqwen
