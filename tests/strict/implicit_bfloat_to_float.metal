// expect: an implicit conversion to float
#include <metal_stdlib>
using namespace metal;

kernel void run(device float* out [[buffer(0)]], device const bfloat* in [[buffer(1)]],
                uint i [[thread_position_in_grid]]) {
#ifdef FIXED
  out[i] = float(in[i]);
#else
  out[i] = in[i];
#endif
}
