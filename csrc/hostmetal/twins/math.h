// Functions of Wide that C has for one float, and the activations of metal/activation.h.
#pragma once
#include "wide.h"

namespace mtlqwen::twins {

// e^x within 1 ulp (every 61st float was tried); 0 where it is no normal float, infinity above the
// floats, NaN for NaN. e^x = 2^n e^r, |r| <= ln 2 / 2, e^r by its series: r^8 / 8! is 2^-27.
MTLQWEN_INLINE Wide exp(Wide x) {
  constexpr float kRound = 12582912.0F;       // 1.5 * 2^23: n ends up in the low bits
  constexpr float kLn2High = 0.693359375F;    // n * it is exact
  constexpr float kLn2Low = -2.12194440e-4F;  // ln 2 - kLn2High
  constexpr float kLeast = -87.336544F;       // ln 2^-126
  constexpr float kMost = 88.7228394F;        // ln FLT_MAX
  constexpr float kLog2E = 1.44269504F;
  const Wide shifted = multiply_add(x, Wide(kLog2E), Wide(kRound));
  const Wide n = shifted - kRound;
  const Wide r = multiply_add(-n, Wide(kLn2Low), multiply_add(-n, Wide(kLn2High), x));
  Wide p = 1.0F / 5040.0F;
  p = multiply_add(p, r, Wide(1.0F / 720.0F));
  p = multiply_add(p, r, Wide(1.0F / 120.0F));
  p = multiply_add(p, r, Wide(1.0F / 24.0F));
  p = multiply_add(p, r, Wide(1.0F / 6.0F));
  p = multiply_add(p, r, Wide(0.5F));
  p = multiply_add(p, r, Wide(1.0F));
  p = multiply_add(p, r, Wide(1.0F));
  const Wide scaled = (Wide)((WideInts)p + ((WideInts)shifted << 23));
  const Wide above = x > kMost ? Wide(__builtin_inff()) : scaled;
  const Wide below = x < kLeast ? Wide(0.0F) : above;
  return x == x ? below : x;
}

MTLQWEN_INLINE Wide sigmoid(Wide x) {
  const Wide e = exp(-__builtin_elementwise_abs(x));
  return (x >= 0.0F ? Wide(1.0F) : e) / (e + 1.0F);
}

MTLQWEN_INLINE Wide silu(Wide x) { return x * sigmoid(x); }

}  // namespace mtlqwen::twins
