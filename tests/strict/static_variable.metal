// expect: a static variable in a function
#include <metal_stdlib>
using namespace metal;

kernel void run(device float* out [[buffer(0)]], uint i [[thread_position_in_grid]]) {
#ifdef FIXED
  constexpr float kOne = 1.0f;
#else
  static constexpr float kOne = 1.0f;
#endif
  out[i] = kOne;
}
