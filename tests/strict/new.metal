// expect: new' is not supported
#include <metal_stdlib>
using namespace metal;

kernel void run(device float* out [[buffer(0)]], uint i [[thread_position_in_grid]]) {
#ifdef FIXED
  float p[4] = {};
#else
  thread float* p = new float[4];
#endif
  out[i] = p[0];
}
