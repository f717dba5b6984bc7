// expect: use of type 'double' requires cl_khr_fp64
#include <metal_stdlib>
using namespace metal;

kernel void run(device float* out [[buffer(0)]], uint i [[thread_position_in_grid]]) {
#ifdef FIXED
  const float x = out[i];
#else
  const double x = out[i];
#endif
  out[i] = float(x + x);
}
