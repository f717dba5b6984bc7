// Activations that several kernels share. None overflows for any finite input: every exp has an
// argument <= 0.
#pragma once
#include <metal_stdlib>

inline float sigmoid(float x) {
  const float e = metal::precise::exp(-metal::fabs(x));
  return (x >= 0.0f ? 1.0f : e) / (1.0f + e);
}

inline float4 sigmoid(float4 x) {
  const float4 e = metal::precise::exp(-metal::fabs(x));
  return metal::select(e, float4(1.0f), x >= 0.0f) / (1.0f + e);
}

inline float4 silu(float4 x) { return x * sigmoid(x); }

// log(1 + exp(x)) = max(x, 0) + log1p(e), e = exp(-|x|). MSL has no log1p, and log(1 + e) loses
// small e; so log1p(e) = 2 atanh(s), s = e / (2 + e) <= 1/3. The first dropped term is s^17 / 17,
// 2^-29 of the first.
inline float softplus(float x) {
  const float e = metal::precise::exp(-metal::fabs(x));
  const float s = e / (2.0f + e);
  const float t = s * s;
  float p = 1.0f / 15.0f;
  p = p * t + 1.0f / 13.0f;
  p = p * t + 1.0f / 11.0f;
  p = p * t + 1.0f / 9.0f;
  p = p * t + 1.0f / 7.0f;
  p = p * t + 1.0f / 5.0f;
  p = p * t + 1.0f / 3.0f;
  p = p * t + 1.0f;
  return metal::fmax(x, 0.0f) + 2.0f * s * p;
}
