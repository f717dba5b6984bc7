// expect: parameter attribute texture is not supported
#include <metal_stdlib>
using namespace metal;

kernel void run(device float* out [[buffer(0)]],
#ifdef FIXED
                device const float* image [[buffer(1)]],
#else
                texture2d<float> image [[texture(0)]],
#endif
                uint i [[thread_position_in_grid]]) {
  out[i] = 0.0f;
}
