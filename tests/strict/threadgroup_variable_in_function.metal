// expect: threadgroup variable outside the top level of a kernel
#include <metal_stdlib>
using namespace metal;

static float stage(float x, uint lane) {
#ifdef FIXED
  float shared[32];
#else
  threadgroup float shared[32];
#endif
  shared[lane] = x;
  return shared[lane];
}

kernel void run(device float* out [[buffer(0)]], uint i [[thread_position_in_grid]]) {
  out[i] = stage(out[i], i % 32);
}
