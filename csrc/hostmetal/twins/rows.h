// Rows whose length is a multiple of 4: sixteen elements at a time, the last few by themselves.
#pragma once
#include "wide.h"

namespace mtlqwen::twins {

// The first n < 16 elements; zeros follow.
MTLQWEN_INLINE Wide load_few(const float* from, uint32_t n) {
  float few[kWide] = {};
  for (uint32_t i = 0; i < n; i++) few[i] = from[i];
  return load(few);
}

MTLQWEN_INLINE void store_few(float* to, Wide a, uint32_t n) {
  for (uint32_t i = 0; i < n; i++) to[i] = a[i];
}

// The sum of n squares, in 32 running sums.
MTLQWEN_INLINE float sum_of_squares(const float* x, uint32_t n) {
  Wide even = 0.0F;
  Wide odd = 0.0F;
  uint32_t i = 0;
  for (; i + 2 * kWide <= n; i += 2 * kWide) {
    const Wide a = load(x + i);
    const Wide b = load(x + i + kWide);
    even = multiply_add(a, a, even);
    odd = multiply_add(b, b, odd);
  }
  if (i + kWide <= n) {
    const Wide a = load(x + i);
    even = multiply_add(a, a, even);
    i += kWide;
  }
  if (i < n) {
    const Wide a = load_few(x + i, n - i);
    odd = multiply_add(a, a, odd);
  }
  return fold(even + odd);
}

}  // namespace mtlqwen::twins
