// Sixteen draws at once: metal/philox.h and the noise of metal/sample.metal.
#pragma once
#include "twin.h"
#include "wide.h"

namespace mtlqwen::twins {

MTLQWEN_WIDE(WideUints, uint32_t, 64);
typedef uint64_t WideLongs __attribute__((ext_vector_type(8), aligned(64)));

constexpr float kLowest = -3.402823466e38F;  // a score must exceed it
constexpr float kGumbelBound = 16.7F;        // above -log(-log(1 - 2^-24)) = 16.636
constexpr uint32_t kNoId = 0xFFFFFFFFU;

MTLQWEN_INLINE bool any(WideInts conditions) { return __builtin_reduce_or(conditions) != 0; }

inline float uniform_open(uint32_t word) {
  return (static_cast<float>(word >> 9) + 0.5F) * (1.0F / 8388608.0F);
}

MTLQWEN_INLINE Wide uniform_open(WideUints words) {
  return (__builtin_convertvector((WideInts)(words >> 9), Wide) + 0.5F) * (1.0F / 8388608.0F);
}

// Both halves of the products of 32 bits.
MTLQWEN_INLINE void multiply_long(WideUints a, uint32_t b, WideUints& high, WideUints& low) {
  constexpr uint64_t kLow = 0xFFFFFFFFU;
  const WideLongs even = ((WideLongs)a & kLow) * WideLongs(b);
  const WideLongs odd = ((WideLongs)a >> 32) * WideLongs(b);
  high = (WideUints)((even >> 32) | (odd & ~kLow));
  low = (WideUints)((even & kLow) | (odd << 32));
}

MTLQWEN_INLINE WideUints zip_low(WideUints a, WideUints b) {
  return __builtin_shufflevector(a, b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
}

MTLQWEN_INLINE WideUints zip_high(WideUints a, WideUints b) {
  return __builtin_shufflevector(a, b, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15,
                                 31);
}

// The words of 64 ids, in their order; `quad` is the number of the first four.
MTLQWEN_INLINE void philox_ids(WideUints (&words)[4], uint32_t quad, const SampleArgs& sample) {
  WideUints x = WideUints{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15} + quad;
  WideUints y = sample.position;
  WideUints z = sample.sample_index;
  WideUints w = 0;
  uint32_t key[2] = {sample.seed_low, sample.seed_high};
  for (uint32_t round = 0; round < 10; round++) {
    WideUints high0;
    WideUints low0;
    WideUints high1;
    WideUints low1;
    multiply_long(x, 0xD2511F53U, high0, low0);
    multiply_long(z, 0xCD9E8D57U, high1, low1);
    x = high1 ^ y ^ key[0];
    y = low1;
    z = high0 ^ w ^ key[1];
    w = low0;
    key[0] += 0x9E3779B9U;
    key[1] += 0xBB67AE85U;
  }
  words[0] = zip_low(zip_low(x, z), zip_low(y, w));
  words[1] = zip_high(zip_low(x, z), zip_low(y, w));
  words[2] = zip_low(zip_high(x, z), zip_high(y, w));
  words[3] = zip_high(zip_high(x, z), zip_high(y, w));
}

// log x of normal x > 0, within 2^-16 of itself or of 1, whichever is less. x = 2^n (1 + f),
// |f| <= 1/3; log(1 + f) / f by a polynomial through its Chebyshev nodes.
MTLQWEN_INLINE Wide rough_log(Wide x) {
  constexpr int32_t kTwoThirds = 0x3F2AAAAB;
  const WideInts n = ((WideInts)x - kTwoThirds) >> 23;
  const Wide f = (Wide)((WideInts)x - (n << 23)) - 1.0F;
  Wide p = -0.19407858F;
  p = multiply_add(p, f, Wide(0.22646901F));
  p = multiply_add(p, f, Wide(-0.24841635F));
  p = multiply_add(p, f, Wide(0.33219162F));
  p = multiply_add(p, f, Wide(-0.50002241F));
  p = multiply_add(p, f, Wide(1.0000072F));
  return multiply_add(__builtin_convertvector(n, Wide), Wide(0.69314718F), f * p);
}

// Above the noise that a word gives, by less than 2^-9: the rough logarithms are off by 2^-16 each.
MTLQWEN_INLINE Wide gumbel_bound(WideUints words) {
  constexpr float kMargin = 1.0F / 1024.0F;
  return kMargin - rough_log(-rough_log(uniform_open(words)));
}

}  // namespace mtlqwen::twins
