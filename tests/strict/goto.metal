// expect: goto is not allowed
#include <metal_stdlib>
using namespace metal;

kernel void run(device float* out [[buffer(0)]], uint i [[thread_position_in_grid]]) {
#ifdef FIXED
  if (i > 3) return;
  out[i] = 0.0f;
#else
  if (i > 3) goto done;
  out[i] = 0.0f;
done:
  return;
#endif
}
