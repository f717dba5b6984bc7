// expect: no setter defined for property
#include <metal_stdlib>
using namespace metal;

kernel void run(device float4* out [[buffer(0)]], uint i [[thread_position_in_grid]]) {
  float4 x = out[i];
#ifdef FIXED
  x.xw = x.yz;
#else
  x.xx = x.yz;
#endif
  out[i] = x;
}
