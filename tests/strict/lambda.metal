// expect: a lambda is not allowed
#include <metal_stdlib>
using namespace metal;

kernel void run(device float* out [[buffer(0)]], uint i [[thread_position_in_grid]]) {
#ifdef FIXED
  out[i] = out[i] + out[i];
#else
  auto twice = [](float x) { return x + x; };
  out[i] = twice(out[i]);
#endif
}
