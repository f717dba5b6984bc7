// expect: a member function without address space
#include <metal_stdlib>
using namespace metal;

struct Scale {
  float value;
#ifdef FIXED
  template <typename T>
  T apply(T x) const thread{
#else
  template <typename T>
  T apply(T x) const {
#endif
      return x * value;
}
}
;

kernel void run(device float* out [[buffer(0)]], uint i [[thread_position_in_grid]]) {
  Scale scale = {2.0f};
  out[i] = scale.apply(out[i]);
}
