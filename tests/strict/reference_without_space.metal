// expect: a pointer or reference without address space
#include <metal_stdlib>
using namespace metal;

#ifdef FIXED
static void add(thread float& x) { x += 1.0f; }
#else
static void add(float& x) { x += 1.0f; }
#endif

kernel void run(device float* out [[buffer(0)]], uint i [[thread_position_in_grid]]) {
  float x = 0.0f;
  add(x);
  out[i] = x;
}
