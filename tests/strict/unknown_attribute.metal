// expect: parameter attribute thread_position is not supported
#include <metal_stdlib>
using namespace metal;

kernel void run(device float* out [[buffer(0)]],
#ifdef FIXED
                uint i [[thread_position_in_grid]]) {
#else
                uint i [[thread_position]]) {
#endif
  out[i] = 0.0f;
}
