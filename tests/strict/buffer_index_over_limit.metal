// expect: buffer index 31 is over 30
#include <metal_stdlib>
using namespace metal;

kernel void run(device float* out [[buffer(0)]],
#ifdef FIXED
                device const float* in [[buffer(30)]],
#else
                device const float* in [[buffer(31)]],
#endif
                uint i [[thread_position_in_grid]]) {
  out[i] = in[i];
}
