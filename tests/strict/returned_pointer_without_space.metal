// expect: a pointer or reference without address space is returned
#include <metal_stdlib>
using namespace metal;

#ifdef FIXED
static device float* next(device float* p) { return p + 1; }
#else
static float* next(device float* p) { return p + 1; }
#endif

kernel void run(device float* out [[buffer(0)]], uint i [[thread_position_in_grid]]) {
  *next(out + i) = 1.0f;
}
