// expect: cannot initialize a variable of type '__local float
#include <metal_stdlib>
using namespace metal;

kernel void run(device float* out [[buffer(0)]], uint i [[thread_position_in_grid]]) {
#ifdef FIXED
  device float* p = out;
#else
  threadgroup float* p = out;
#endif
  p[i] = 1.0f;
}
