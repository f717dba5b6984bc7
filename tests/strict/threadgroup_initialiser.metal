// expect: threadgroup variables cannot be initialised
#include <metal_stdlib>
using namespace metal;

kernel void run(device float* out [[buffer(0)]], uint i [[thread_position_in_grid]]) {
#ifdef FIXED
  threadgroup float shared[2];
#else
  threadgroup float shared[2] = {0.0f, 0.0f};
#endif
  out[i] = shared[0];
}
