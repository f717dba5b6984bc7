// expect: call to 'max' is ambiguous
#include <metal_stdlib>
using namespace metal;

kernel void run(device int* out [[buffer(0)]], uint i [[thread_position_in_grid]]) {
#ifdef FIXED
  out[i] = max(out[i], int(i));
#else
  out[i] = max(out[i], i);
#endif
}
