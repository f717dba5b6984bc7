// expect: no matching function for call to 'threadgroup_barrier'
#include <metal_stdlib>
using namespace metal;

kernel void run(device float* out [[buffer(0)]], uint i [[thread_position_in_grid]]) {
#ifdef FIXED
  threadgroup_barrier(mem_flags::mem_device);
#else
  threadgroup_barrier();
#endif
  out[i] = 0.0f;
}
