// expect: a pointer or reference without address space
#include <metal_stdlib>
using namespace metal;

#ifdef FIXED
static float first(device const float* p) { return p[0]; }
#else
static float first(const float* p) { return p[0]; }
#endif

kernel void run(device float* out [[buffer(0)]], uint i [[thread_position_in_grid]]) {
  out[i] = first(out);
}
