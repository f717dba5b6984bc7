// Int16 rows: activations as the integer linears read them. A row of k elements, k a multiple of 32,
// is 76 * (k / 32) bytes, rows lie one after the other:
//
//   int16 q[k], float scale[k / 32], float sum[k / 16]
//   x[i] ~ q[i] * scale[i / 32]      sum[j] = scale[j / 2] * (q[16 j] + .. + q[16 j + 15])
//
// The sums are for weights that have an offset: offset * sum is its share of a dot product.
// Per 32 elements: scale = max|x| / 32767, q = rint(x * (32767 / max|x|)), so |error| <= scale / 2
// but for rounding. Where max|x| < 2^-100 all are 0: no quotient leaves the normal floats. Where an x
// is NaN or infinite, q = 0 and scale = NaN, so the result is NaN. The sum of 32 products with int8
// weights fits 32 bits. csrc/hostmetal/twins/int16.h makes the same bytes.
#pragma once
#include <metal_stdlib>
using namespace metal;

enum : uint { kInt16Qblock = 32, kInt16QblockBytes = 76 };

inline ulong int16_row_bytes(uint k) { return ulong(k / kInt16Qblock) * kInt16QblockBytes; }

// Of the row that starts at `row`; k elements.
inline device const float* int16_scales(device const uchar* row, uint k) {
  return (device const float*)(row + 2 * k);
}
inline device const float* int16_sums(device const uchar* row, uint k) {
  return int16_scales(row, k) + k / kInt16Qblock;
}

// Quantises the 32 elements that eight neighbouring lanes hold, four each: x has the elements from
// `first` on, a multiple of 4. All lanes of the simdgroup call it; where first >= k nothing is
// stored.
inline void int16_quantise(device uchar* row, uint k, uint first, float4 x, uint lane) {
  // The bits of |x| are ordered as the values are, with infinity and NaN above all others.
  const uint4 magnitudes = as_type<uint4>(x) & 0x7FFFFFFFu;
  uint most = max(max(magnitudes.x, magnitudes.y), max(magnitudes.z, magnitudes.w));
  for (ushort mask = 1; mask < 8; mask *= 2) most = max(most, simd_shuffle_xor(most, mask));
  const bool is_finite = most < 0x7F800000u;
  const bool is_zero = most < (127u - 100u) << 23;

  int4 q = int4(0);
  float scale = is_finite ? 0.0f : as_type<float>(0x7FC00000u);
  if (is_finite && !is_zero) {
    q = int4(rint(x * (32767.0f / as_type<float>(most))));
    scale = as_type<float>(most) / 32767.0f;
  }

  int sum = q.x + q.y + q.z + q.w;
  for (ushort mask = 1; mask < 4; mask *= 2) sum += simd_shuffle_xor(sum, mask);

  if (first >= k) return;
  device short* quants = (device short*)row + first;
  for (uint i = 0; i < 4; i++) quants[i] = short(q[i]);
  device float* scales = (device float*)(row + 2 * k);
  if (lane % 8 == 0) scales[first / kInt16Qblock] = scale;
  if (lane % 4 == 0) scales[(k + 2 * first) / kInt16Qblock] = scale * float(sum);
}

// The same for qblock number `qblock` of the row, of which each lane holds one element.
inline void store_int16(device uchar* row, uint k, uint qblock, float x, uint lane) {
  // From one element a lane to four in each of the first eight lanes.
  const ushort from = lane % 8 * 4;
  const float4 four = float4(simd_shuffle(x, from), simd_shuffle(x, from + 1),
                             simd_shuffle(x, from + 2), simd_shuffle(x, from + 3));
  int16_quantise(row, k, lane < 8 ? qblock * kInt16Qblock + from : k, four, lane);
}
