// What the formats of packed.h and packed_iq.h unpack to.
#pragma once
#include <metal_stdlib>
using namespace metal;

// Adding it changes nothing, not even the sign of a zero.
constant constexpr float kNoOffset = -0.0f;

struct Codes {
  int4 codes[4];
  float scale;
  float offset;
};

// Four of the sixteen weights.
inline float4 weights_of(thread const Codes& codes, uint i) {
  return fma(float4(codes.codes[i]), float4(codes.scale), float4(codes.offset));
}

inline float half_at(device const uchar* at) { return float(*(device const half*)at); }
inline int4 bytes_at(device const uchar* at) { return int4(at[0], at[1], at[2], at[3]); }
