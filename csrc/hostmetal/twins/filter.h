// What a filter and a mask leave of a row, sixteen ids at a time: metal/filter.metal, metal/mask.h.
#pragma once
#include "sample.h"

namespace mtlqwen::twins {

constexpr uint32_t kNoIndex = MTLQWEN_NO_INDEX;

// Bit `id` % 32 of word `id` / 32 is set where the id is allowed; no words: all are.
struct Mask {
  const uint32_t* words = nullptr;
  uint32_t n_words = 0;
};

inline Mask mask_of(const uint32_t* masks, const SampleArgs& sample, const SampleScanArgs& args) {
  if (sample.mask == kNoIndex) return {};
  return {masks + uint64_t{sample.mask} * args.mask_words, args.mask_words};
}

// Of sixteen ids from `id` on; those behind the mask are not allowed.
MTLQWEN_INLINE WideInts allowed(const Mask& mask, uint32_t id) {
  const uint32_t word = id / 32;
  uint64_t bits = word < mask.n_words ? mask.words[word] : 0;
  if (word + 1 < mask.n_words) bits |= uint64_t{mask.words[word + 1]} << 32;
  const WideUints some = WideUints(static_cast<uint32_t>(bits >> id % 32));
  const WideUints place = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
  return (some >> place & 1U) != 0U;
}

}  // namespace mtlqwen::twins
