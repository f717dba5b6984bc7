// expect: threadgroup memory of a kernel is at most 32768 bytes
#include <metal_stdlib>
using namespace metal;

kernel void run(device float* out [[buffer(0)]], uint i [[thread_position_in_grid]]) {
  threadgroup float first[4096];
#ifdef FIXED
  threadgroup float second[4096];
#else
  threadgroup float second[4097];
#endif
  first[i] = second[i] = out[i];
  out[i] = first[i] + second[i];
}
