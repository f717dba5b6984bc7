// expect: function constant kRows is used outside a function
#include <metal_stdlib>
using namespace metal;

constant uint kRows [[function_constant(0)]];
#ifdef FIXED
constant uint kTwice = 2;
#else
constant uint kTwice = kRows * 2;
#endif

kernel void run(device uint* out [[buffer(0)]], uint i [[thread_position_in_grid]]) {
  out[i] = kRows * kTwice;
}
