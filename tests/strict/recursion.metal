// expect: a function that calls itself
#include <metal_stdlib>
using namespace metal;

static uint factorial(uint n) {
#ifdef FIXED
  uint product = 1;
  for (uint k = 2; k <= n; ++k) product *= k;
  return product;
#else
  return n < 2 ? 1 : n * factorial(n - 1);
#endif
}

kernel void run(device uint* out [[buffer(0)]], uint i [[thread_position_in_grid]]) {
  out[i] = factorial(i);
}
