// expect: use of undeclared identifier 'std'
#include <metal_stdlib>
using namespace metal;

kernel void run(device float* out [[buffer(0)]], uint i [[thread_position_in_grid]]) {
#ifdef FIXED
  out[i] = max(out[i], 0.0f);
#else
  out[i] = std::max(out[i], 0.0f);
#endif
}
