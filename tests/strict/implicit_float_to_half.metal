// expect: an implicit conversion to half
#include <metal_stdlib>
using namespace metal;

kernel void run(device half* out [[buffer(0)]], device const float* in [[buffer(1)]],
                uint i [[thread_position_in_grid]]) {
#ifdef FIXED
  out[i] = half(in[i]);
#else
  out[i] = in[i];
#endif
}
