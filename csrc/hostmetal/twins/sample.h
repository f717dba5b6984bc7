// Sixteen draws at once: metal/philox.h and the noise of metal/sample.metal.
#pragma once
#include "twin.h"
#include "wide.h"

namespace mtlqwen::twins {

MTLQWEN_WIDE(WideUints, uint32_t, 64);
typedef uint64_t WideLongs __attribute__((ext_vector_type(8), aligned(64)));

constexpr float kLowest = MTLQWEN_FORBIDDEN;  // a score must exceed it, and a logit, too
constexpr float kGumbelBound = 16.7F;         // above -log(-log(1 - 2^-24)) = 16.636
constexpr auto kNoId = static_cast<uint32_t>(MTLQWEN_NO_CHOICE);

MTLQWEN_INLINE bool any(WideInts conditions) { return __builtin_reduce_or(conditions) != 0; }

inline float uniform_open(uint32_t word) {
  return (static_cast<float>(word >> 9) + 0.5F) * (1.0F / 8388608.0F);
}

MTLQWEN_INLINE Wide uniform_open(WideUints words) {
  return (__builtin_convertvector((WideInts)(words >> 9), Wide) + 0.5F) * (1.0F / 8388608.0F);
}

// The keys of Philox's ten rounds, and the rest of its counter.
struct Draw {
  uint64_t keys[10][2];
  uint32_t position;
  uint32_t sample_index;
};

inline Draw make_draw(const SampleArgs& sample) {
  Draw draw = {{}, sample.position, sample.sample_index};
  for (uint32_t round = 0; round < 10; round++) {
    draw.keys[round][0] = sample.seed_low + round * 0x9E3779B9U;
    draw.keys[round][1] = sample.seed_high + round * 0xBB67AE85U;
  }
  return draw;
}

MTLQWEN_INLINE WideUints zip_low(WideLongs a, WideLongs b) {
  return (WideUints)__builtin_shufflevector(a, b, 0, 8, 1, 9, 2, 10, 3, 11);
}

MTLQWEN_INLINE WideUints zip_high(WideLongs a, WideLongs b) {
  return (WideUints)__builtin_shufflevector(a, b, 4, 12, 5, 13, 6, 14, 7, 15);
}

// The words of 64 ids, in their order; `quad` is the number of the first four. A counter word is the
// low half of its element: a product then has both of its halves in place, and what the upper half
// holds otherwise counts for nothing.
MTLQWEN_INLINE void philox_ids(WideUints (&words)[4], uint32_t quad, const Draw& draw) {
  constexpr uint64_t kLow = 0xFFFFFFFFU;
  WideLongs x[2] = {WideLongs{0, 1, 2, 3, 4, 5, 6, 7} + quad,
                    WideLongs{8, 9, 10, 11, 12, 13, 14, 15} + quad};
  WideLongs y[2] = {WideLongs(draw.position), WideLongs(draw.position)};
  WideLongs z[2] = {WideLongs(draw.sample_index), WideLongs(draw.sample_index)};
  WideLongs w[2] = {WideLongs(0), WideLongs(0)};
#pragma unroll
  for (uint32_t round = 0; round < 10; round++) {
#pragma unroll
    for (uint32_t i = 0; i < 2; i++) {
      const WideLongs from_x = (x[i] & kLow) * 0xD2511F53U;
      const WideLongs from_z = (z[i] & kLow) * 0xCD9E8D57U;
      x[i] = (from_z >> 32) ^ y[i] ^ draw.keys[round][0];
      y[i] = from_z;
      z[i] = (from_x >> 32) ^ w[i] ^ draw.keys[round][1];
      w[i] = from_x;
    }
  }
#pragma unroll
  for (uint32_t i = 0; i < 2; i++) {
    const WideLongs xy = (x[i] & kLow) | (y[i] << 32);
    const WideLongs zw = (z[i] & kLow) | (w[i] << 32);
    words[2 * i] = zip_low(xy, zw);
    words[2 * i + 1] = zip_high(xy, zw);
  }
}

}  // namespace mtlqwen::twins
