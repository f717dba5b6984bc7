// expect: kernel run is defined twice
#include <metal_stdlib>
using namespace metal;

kernel void run(device float* out [[buffer(0)]], uint i [[thread_position_in_grid]]) {
  out[i] = 0.0f;
}

#ifdef FIXED
[[host_name("run_one")]]
#else
[[host_name("run")]]
#endif
kernel void one(device float* out [[buffer(0)]], uint i [[thread_position_in_grid]]) {
  out[i] = 1.0f;
}
