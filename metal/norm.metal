// RMSNorm, and the gathering of the rows that get logits.
//
//   rms_norm       out[r][d] = in[r][d] / sqrt(mean_d(in[r][d]^2) + eps) * weight[d]
//                  weight already holds 1 + w
//   rms_norm_int16  the same, and out16[r] = out[r] as an int16 row (int16.h)
//   gather_rows    out[i][d] = in[logit_rows[i]][d]
//
// A row that cannot be normed since an element is not finite, or the sum of its squares, is spoilt.
//
// Grid (1, rows) and (1, n_logit_rows), one simdgroup a row. dim is a multiple of 4, for int16 rows of
// 32. No threadgroup memory.
#include <metal_stdlib>

#include "int16.h"
#include "kernel_args.h"
#include "spoilt.h"
using namespace metal;

inline float norm_scale(device const float4* x, constant NormArgs& args, uint lane) {
  float4 squares = float4(0.0f);
  for (uint i = lane; i < args.dim / 4; i += 32) squares += x[i] * x[i];
  const float sum = simd_sum(squares.x + squares.y + squares.z + squares.w);
  return precise::rsqrt(sum / float(args.dim) + args.eps);
}

// 0 or NaN is the scale of a row whose sum is not finite.
inline void check_scale(float scale, device atomic_uint* spoilt, uint row, constant NormArgs& args,
                        uint lane) {
  if (lane == 0 && !(scale > 0.0f)) note_spoilt(spoilt, row, args.place);
}

kernel void rms_norm(device float* out [[buffer(0)]],           // (rows, dim)
                     device const float* in [[buffer(1)]],      // (rows, dim)
                     device const float* weight [[buffer(2)]],  // (dim)
                     device atomic_uint* spoilt [[buffer(3)]],  // (rows)
                     constant NormArgs& args [[buffer(4)]], constant Pass& pass [[buffer(5)]],
                     uint2 group [[threadgroup_position_in_grid]],
                     uint lane [[thread_index_in_simdgroup]]) {
  const uint width = args.dim / 4;
  device const float4* x = (device const float4*)in + group.y * width;
  device const float4* w = (device const float4*)weight;
  device float4* y = (device float4*)out + group.y * width;

  const float scale = norm_scale(x, args, lane);
  check_scale(scale, spoilt, group.y, args, lane);
  for (uint i = lane; i < width; i += 32) y[i] = x[i] * scale * w[i];
}

kernel void rms_norm_int16(device float* out [[buffer(0)]],           // (rows, dim)
                           device uchar* out16 [[buffer(1)]],         // (rows) int16 rows of dim
                           device const float* in [[buffer(2)]],      // (rows, dim)
                           device const float* weight [[buffer(3)]],  // (dim)
                           device atomic_uint* spoilt [[buffer(4)]],  // (rows)
                           constant NormArgs& args [[buffer(5)]], constant Pass& pass [[buffer(6)]],
                           uint2 group [[threadgroup_position_in_grid]],
                           uint lane [[thread_index_in_simdgroup]]) {
  const uint width = args.dim / 4;
  device const float4* x = (device const float4*)in + group.y * width;
  device const float4* w = (device const float4*)weight;
  device float4* y = (device float4*)out + group.y * width;
  device uchar* row = out16 + group.y * int16_row_bytes(args.dim);

  const float scale = norm_scale(x, args, lane);
  check_scale(scale, spoilt, group.y, args, lane);
  for (uint start = 0; start < width; start += 32) {
    const uint i = start + lane;
    float4 normed = float4(0.0f);
    if (i < width) {
      normed = x[i] * scale * w[i];
      y[i] = normed;
    }
    int16_quantise(row, args.dim, 4 * i, normed, lane);
  }
}

kernel void gather_rows(device float* out [[buffer(0)]],              // (n_logit_rows, dim)
                        device const float* in [[buffer(1)]],         // (rows, dim)
                        device const uint* logit_rows [[buffer(2)]],  // (n_logit_rows)
                        constant RowsArgs& args [[buffer(3)]], constant Pass& pass [[buffer(4)]],
                        uint2 group [[threadgroup_position_in_grid]],
                        uint lane [[thread_index_in_simdgroup]]) {
  const uint width = args.dim / 4;
  device const float4* x = (device const float4*)in + logit_rows[group.y] * width;
  device float4* y = (device float4*)out + group.y * width;
  for (uint i = lane; i < width; i += 32) y[i] = x[i];
}
