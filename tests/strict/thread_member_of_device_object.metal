// expect: cannot initialize object parameter of type
#include <metal_stdlib>
using namespace metal;

struct Half {
  float value;
  float get() const thread { return value * 0.5f; }
};

kernel void run(device float* out [[buffer(0)]], device const Half* in [[buffer(1)]],
                uint i [[thread_position_in_grid]]) {
#ifdef FIXED
  const Half h = in[i];
  out[i] = h.get();
#else
  out[i] = in[i].get();
#endif
}
