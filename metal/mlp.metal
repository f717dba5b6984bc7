// The gate of the MLP between its linears.
//
//   swiglu  out[r][d] = silu(gate[r][d]) * up[r][d]
//
// Grid (1, rows), one simdgroup a row. dim is a multiple of 4.
#include <metal_stdlib>

#include "activation.h"
#include "kernel_args.h"
using namespace metal;

kernel void swiglu(device float* out [[buffer(0)]],         // (rows, dim)
                   device const float* gate [[buffer(1)]],  // (rows, dim)
                   device const float* up [[buffer(2)]],    // (rows, dim)
                   constant RowsArgs& args [[buffer(3)]], constant Pass& pass [[buffer(4)]],
                   uint2 group [[threadgroup_position_in_grid]],
                   uint lane [[thread_index_in_simdgroup]]) {
  const uint width = args.dim / 4;
  device const float4* g = (device const float4*)gate + group.y * width;
  device const float4* u = (device const float4*)up + group.y * width;
  device float4* y = (device float4*)out + group.y * width;
  for (uint i = lane; i < width; i += 32) y[i] = silu(g[i]) * u[i];
}
