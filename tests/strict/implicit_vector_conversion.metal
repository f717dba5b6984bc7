// expect: no viable conversion
#include <metal_stdlib>
using namespace metal;

kernel void run(device half4* in [[buffer(0)]], device float4* out [[buffer(1)]],
                uint i [[thread_position_in_grid]]) {
#ifdef FIXED
  const float4 x = float4(in[i]);
#else
  const float4 x = in[i];
#endif
  out[i] = x;
}
