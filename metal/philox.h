// Philox4x32-10: Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC11.
// A pure function of counter and key: no state, so a draw depends on nothing but what names it.
#pragma once
#include <metal_stdlib>

inline uint4 philox4x32(uint4 counter, uint2 key) {
  for (uint round = 0; round < 10; round++) {
    const uint high0 = metal::mulhi(0xD2511F53u, counter.x);
    const uint low0 = 0xD2511F53u * counter.x;
    const uint high1 = metal::mulhi(0xCD9E8D57u, counter.z);
    const uint low1 = 0xCD9E8D57u * counter.z;
    counter = uint4(high1 ^ counter.y ^ key.x, low1, high0 ^ counter.w ^ key.y, low0);
    key += uint2(0x9E3779B9u, 0xBB67AE85u);
  }
  return counter;
}

// Strictly inside (0, 1): (word >> 9) + 0.5 has 24 significant bits, so neither end is reached by
// rounding.
inline float uniform_open(uint word) { return (float(word >> 9) + 0.5f) * (1.0f / 8388608.0f); }
