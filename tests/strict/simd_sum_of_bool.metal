// expect: no matching function for call to 'simd_sum'
#include <metal_stdlib>
using namespace metal;

kernel void run(device float* out [[buffer(0)]], uint i [[thread_position_in_grid]]) {
#ifdef FIXED
  out[i] = float(simd_sum(uint(out[i] > 0.0f)));
#else
  out[i] = float(simd_sum(out[i] > 0.0f));
#endif
}
