// expect: cannot assign to variable 'args' with const-qualified type
#include <metal_stdlib>
using namespace metal;

struct Args {
  uint n;
};

kernel void run(device uint* out [[buffer(0)]], constant Args& args [[buffer(1)]],
                uint i [[thread_position_in_grid]]) {
#ifdef FIXED
  out[i] = args.n + 1;
#else
  args.n += 1;
#endif
}
