// RMSNorm, and the gathering of the rows that get logits.
//
//   rms_norm     out[r][d] = in[r][d] / sqrt(mean_d(in[r][d]^2) + eps) * weight[d]
//                weight already holds 1 + w
//   gather_rows  out[i][d] = in[logit_rows[i]][d]
//
// Grid (1, rows) and (1, n_logit_rows), one simdgroup a row. dim is a multiple of 4. No threadgroup
// memory.
#include <metal_stdlib>

#include "kernel_args.h"
using namespace metal;

kernel void rms_norm(device float* out [[buffer(0)]],           // (rows, dim)
                     device const float* in [[buffer(1)]],      // (rows, dim)
                     device const float* weight [[buffer(2)]],  // (dim)
                     constant NormArgs& args [[buffer(3)]], constant Pass& pass [[buffer(4)]],
                     uint2 group [[threadgroup_position_in_grid]],
                     uint lane [[thread_index_in_simdgroup]]) {
  const uint width = args.dim / 4;
  device const float4* x = (device const float4*)in + group.y * width;
  device const float4* w = (device const float4*)weight;
  device float4* y = (device float4*)out + group.y * width;

  float4 squares = float4(0.0f);
  for (uint i = lane; i < width; i += 32) squares += x[i] * x[i];
  const float sum = simd_sum(squares.x + squares.y + squares.z + squares.w);
  const float scale = precise::rsqrt(sum / float(args.dim) + args.eps);
  for (uint i = lane; i < width; i += 32) y[i] = x[i] * scale * w[i];
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
