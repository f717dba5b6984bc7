// expect: undeclared identifier 'memory_order_seq_cst'
#include <metal_stdlib>
using namespace metal;

kernel void run(device atomic_uint* out [[buffer(0)]]) {
#ifdef FIXED
  atomic_fetch_add_explicit(out, 1u, memory_order_relaxed);
#else
  atomic_fetch_add_explicit(out, 1u, memory_order_seq_cst);
#endif
}
