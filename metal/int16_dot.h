// The product of an int16 row with a row of weights, plainly: software devices run the twins.
#pragma once
#include "int16.h"
#include "quant.h"

struct Int16Q8_0 : FormatQ8_0 {
  static float scale(device const uchar* qblock) { return float(*(device const half*)qblock); }
  static int weight(device const uchar* qblock, uint i) {
    return ((device const char*)qblock)[2 + i];
  }
};

template <typename Format>
static float dot_row(device const uchar* x, device const uchar* weights, uint k) {
  device const short* q = (device const short*)x;
  device const float* scales = int16_scales(x, k);
  float sum = 0.0f;
  for (uint b = 0; b < k / kQblock; b++) {
    device const uchar* qblock = weights + b * Format::kQblockBytes;
    int products = 0;
    for (uint i = 0; i < kQblock; i++) {
      products += int(q[b * kQblock + i]) * Format::weight(qblock, i);
    }
    sum = fma(float(products) * Format::scale(qblock), scales[b], sum);
  }
  return sum;
}
