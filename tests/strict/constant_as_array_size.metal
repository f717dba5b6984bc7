// expect: array size is not a constant expression
#include <metal_stdlib>
using namespace metal;

constant uint kCount [[function_constant(0)]];

kernel void run(device float* out [[buffer(0)]], uint i [[thread_position_in_grid]]) {
#ifdef FIXED
  float sums[4];
#else
  float sums[kCount];
#endif
  sums[0] = float(kCount);
  out[i] = sums[0];
}
