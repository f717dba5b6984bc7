// expect: undeclared identifier 'printf'
#include <metal_stdlib>
using namespace metal;

kernel void run(device float* out [[buffer(0)]], uint i [[thread_position_in_grid]]) {
#ifdef FIXED
  (void)i;
#else
  printf("%u", i);
#endif
  out[i] = 0.0f;
}
