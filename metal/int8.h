// Int8 rows: activations as the int8 linears read them. A row of k elements, k a multiple of 32, is
// 40 * (k / 32) bytes, rows lie one after the other:
//
//   int8 q[k], float scale[k / 32], int32 sum[k / 32]      x[i] ~ q[i] * scale[i / 32]
//
// Per 32 elements: scale = max|x| / 127, q = rint(x * (127 / max|x|)), so |error| <= scale / 2 but
// for rounding; sum is that of q. Where max|x| < 2^-100 all are 0: no quotient leaves the normal
// floats. Where an x is NaN or infinite, q = 0 and scale = NaN, so the result is NaN.
// csrc/hostmetal/twins/int8.h makes the same bytes.
#pragma once
#include <metal_stdlib>
using namespace metal;

enum : uint { kInt8Qblock = 32, kInt8QblockBytes = 40 };

inline ulong int8_row_bytes(uint k) { return ulong(k / kInt8Qblock) * kInt8QblockBytes; }

// Of the row that starts at `row`; k elements.
inline device const float* int8_scales(device const uchar* row, uint k) {
  return (device const float*)(row + k);
}
inline device const int* int8_sums(device const uchar* row, uint k) {
  return (device const int*)(row + k + k / kInt8Qblock * 4);
}

// Quantises the 32 elements that eight neighbouring lanes hold, four each: x has the elements from
// `first` on, a multiple of 4. All lanes of the simdgroup call it; where first >= k nothing is
// stored.
inline void int8_quantise(device uchar* row, uint k, uint first, float4 x, uint lane) {
  // The bits of |x| are ordered as the values are, with infinity and NaN above all others.
  const uint4 magnitudes = as_type<uint4>(x) & 0x7FFFFFFFu;
  uint most = max(max(magnitudes.x, magnitudes.y), max(magnitudes.z, magnitudes.w));
  for (ushort mask = 1; mask < 8; mask *= 2) most = max(most, simd_shuffle_xor(most, mask));
  const bool is_finite = most < 0x7F800000u;
  const bool is_zero = most < (127u - 100u) << 23;

  int4 q = int4(0);
  float scale = is_finite ? 0.0f : as_type<float>(0x7FC00000u);
  if (is_finite && !is_zero) {
    q = int4(rint(x * (127.0f / as_type<float>(most))));
    scale = as_type<float>(most) / 127.0f;
  }
  int sum = (q.x + q.y) + (q.z + q.w);
  for (ushort mask = 1; mask < 8; mask *= 2) sum += simd_shuffle_xor(sum, mask);

  if (first >= k) return;
  *(device char4*)(row + first) = char4(q);
  if (lane % 8 == 0) {
    device float* scales = (device float*)(row + k);
    scales[first / kInt8Qblock] = scale;
    ((device int*)(scales + k / kInt8Qblock))[first / kInt8Qblock] = sum;
  }
}
