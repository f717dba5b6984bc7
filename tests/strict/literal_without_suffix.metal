// expect: float literal 0.5 needs a suffix
#include <metal_stdlib>
using namespace metal;

kernel void run(device float* out [[buffer(0)]], uint i [[thread_position_in_grid]]) {
#ifdef FIXED
  out[i] *= 0.5f;
#else
  out[i] *= 0.5;
#endif
}
