// expect: function constant index 0 is already that of kRows
#include <metal_stdlib>
using namespace metal;

constant uint kRows [[function_constant(0)]];
#ifdef FIXED
constant uint kColumns [[function_constant(1)]];
#else
constant uint kColumns [[function_constant(0)]];
#endif

kernel void run(device uint* out [[buffer(0)]], uint i [[thread_position_in_grid]]) {
  out[i] = kRows * kColumns;
}
