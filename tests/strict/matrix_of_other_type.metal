// expect: no matching function for call to 'simdgroup_load'
#include <metal_stdlib>
using namespace metal;

kernel void run(device float* out [[buffer(0)]], device const half* in [[buffer(1)]]) {
#ifdef FIXED
  simdgroup_half8x8 m;
#else
  simdgroup_float8x8 m;
#endif
  simdgroup_load(m, in, 8);
  out[0] = float(m.thread_elements()[0]);
}
