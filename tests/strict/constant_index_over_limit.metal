// expect: function_constant index 64 is over 63
#include <metal_stdlib>
using namespace metal;

#ifdef FIXED
constant uint kRows [[function_constant(63)]];
#else
constant uint kRows [[function_constant(64)]];
#endif

kernel void run(device uint* out [[buffer(0)]], uint i [[thread_position_in_grid]]) {
  out[i] = kRows;
}
