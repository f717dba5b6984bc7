// expect: threadgroup index 8 is over 7
#include <metal_stdlib>
using namespace metal;

kernel void run(device float* out [[buffer(0)]],
#ifdef FIXED
                threadgroup float* shared [[threadgroup(7)]],
#else
                threadgroup float* shared [[threadgroup(8)]],
#endif
                uint i [[thread_position_in_grid]]) {
  shared[i] = out[i];
}
