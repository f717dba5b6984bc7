// expect: no matching function for call
#include <metal_stdlib>
using namespace metal;

static float first(device const float* p) { return p[0]; }

kernel void run(device float* out [[buffer(0)]], uint i [[thread_position_in_grid]]) {
  thread float x = 1.0f;
#ifdef FIXED
  out[i] = first(out) + x;
#else
  out[i] = first(&x);
#endif
}
