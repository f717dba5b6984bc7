// expect: a member function without address space
#include <metal_stdlib>
using namespace metal;

struct Half {
  float value;
#ifdef FIXED
  float get() const thread { return value * 0.5f; }
#else
  float get() const { return value * 0.5f; }
#endif
};

kernel void run(device float* out [[buffer(0)]], uint i [[thread_position_in_grid]]) {
  Half h = {1.0f};
  out[i] = h.get();
}
