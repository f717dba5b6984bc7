// The product of an int16 row with a row of packed weights, plainly: software devices run the twins.
//
// Of each 16 elements it is dot(q, codes) * weight scale * row scale + offset * row sum, with an exact
// dot.
#pragma once
#include "int16.h"
#include "packed.h"

static float dot_row(uint format, device const uchar* x, device const uchar* weights, uint k) {
  device const short* q = (device const short*)x;
  device const float* scales = int16_scales(x, k);
  device const float* row_sums = int16_sums(x, k);
  float sum = 0.0f;
  for (uint first = 0; first < k; first += 16) {
    const Codes codes = packed_codes(format, weights, first);
    int products = 0;
    for (uint i = 0; i < 16; i++) products += int(q[first + i]) * codes.codes[i / 4][i % 4];
    sum = fma(float(products) * codes.scale, scales[first / kInt16Qblock], sum);
    sum = fma(codes.offset, row_sums[first / 16], sum);
  }
  return sum;
}
