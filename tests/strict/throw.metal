// expect: cannot use 'throw' with exceptions disabled
#include <metal_stdlib>
using namespace metal;

kernel void run(device float* out [[buffer(0)]], uint i [[thread_position_in_grid]]) {
#ifdef FIXED
  if (i > 3) return;
#else
  if (i > 3) throw 1;
#endif
  out[i] = 0.0f;
}
