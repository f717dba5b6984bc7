// expect: a function that calls itself
#include <metal_stdlib>
using namespace metal;

static uint odd(uint n);
static uint even(uint n) { return n == 0 ? 1 : odd(n - 1); }
#ifdef FIXED
static uint odd(uint n) { return n % 2; }
#else
static uint odd(uint n) { return n == 0 ? 0 : even(n - 1); }
#endif

kernel void run(device uint* out [[buffer(0)]], uint i [[thread_position_in_grid]]) {
  out[i] = even(i);
}
