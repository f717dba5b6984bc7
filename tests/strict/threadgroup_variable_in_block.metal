// expect: threadgroup variable outside the top level of a kernel
#include <metal_stdlib>
using namespace metal;

kernel void run(device float* out [[buffer(0)]], uint i [[thread_position_in_grid]]) {
#ifdef FIXED
  threadgroup float shared[32];
  if (i < 32) {
#else
  if (i < 32) {
    threadgroup float shared[32];
#endif
    shared[i] = out[i];
    out[i] = shared[i];
  }
}
