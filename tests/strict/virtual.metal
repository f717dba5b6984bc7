// expect: a virtual function
#include <metal_stdlib>
using namespace metal;

struct Base {
#ifdef FIXED
  float get() const thread { return 1.0f; }
#else
  virtual float get() const thread { return 1.0f; }
#endif
};

kernel void run(device float* out [[buffer(0)]], uint i [[thread_position_in_grid]]) {
  Base b;
  out[i] = b.get();
}
