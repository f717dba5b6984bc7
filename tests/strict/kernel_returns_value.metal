// expect: must return void
#include <metal_stdlib>
using namespace metal;

#ifdef FIXED
kernel void run(
#else
kernel float run(
#endif
    device float* out [[buffer(0)]], uint i [[thread_position_in_grid]]) {
  out[i] = 0.0f;
}
