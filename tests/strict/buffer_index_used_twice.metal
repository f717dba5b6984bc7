// expect: buffer index 0 is used twice
#include <metal_stdlib>
using namespace metal;

kernel void run(device float* out [[buffer(0)]],
#ifdef FIXED
                device const float* in [[buffer(1)]],
#else
                device const float* in [[buffer(0)]],
#endif
                uint i [[thread_position_in_grid]]) {
  out[i] = in[i];
}
