// expect: a buffer is a device or constant pointer or reference
#include <metal_stdlib>
using namespace metal;

kernel void run(device float* out [[buffer(0)]],
#ifdef FIXED
                constant float& x [[buffer(1)]],
#else
                float x [[buffer(1)]],
#endif
                uint i [[thread_position_in_grid]]) {
  out[i] = x;
}
