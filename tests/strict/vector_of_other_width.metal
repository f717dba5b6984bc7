// expect: no match
#include <metal_stdlib>
using namespace metal;

kernel void run(device float4* out [[buffer(0)]], uint i [[thread_position_in_grid]]) {
  const float2 x = float2(1.0f, 2.0f);
#ifdef FIXED
  out[i] = float4(x, 0.0f, 0.0f);
#else
  out[i] = float4(x, 0.0f);
#endif
}
