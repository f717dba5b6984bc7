// expect: has no attribute
#include <metal_stdlib>
using namespace metal;

kernel void run(device float* out [[buffer(0)]],
#ifdef FIXED
                device const float* in [[buffer(1)]],
#else
                device const float* in,
#endif
                uint i [[thread_position_in_grid]]) {
  out[i] = in[i];
}
