// expect: read-only variable is not assignable
#include <metal_stdlib>
using namespace metal;

kernel void run(device float* out [[buffer(0)]], constant float* in [[buffer(1)]],
                uint i [[thread_position_in_grid]]) {
#ifdef FIXED
  out[i] = in[i];
#else
  in[i] = 1.0f;
#endif
}
