// expect: file not found
#include <metal_stdlib>
using namespace metal;

#ifdef FIXED
#include <metal_math>
#else
#include <vector>
#endif

kernel void run(device float* out [[buffer(0)]], uint i [[thread_position_in_grid]]) {
  out[i] = 0.0f;
}
