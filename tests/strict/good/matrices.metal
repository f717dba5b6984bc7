// Right: simdgroup matrices over every address space, mixed operand types, atomics, `kernel` as an attribute.
#include <metal_simdgroup_matrix>
#include <metal_stdlib>
using namespace metal;

[[kernel, max_total_threads_per_threadgroup(32)]] void
matrices(device float* out [[buffer(0)]], device const half* a [[buffer(1)]],
         constant half* b [[buffer(2)]], device atomic_uint* count [[buffer(3)]],
         uint lane [[thread_index_in_simdgroup]]) {
  threadgroup bfloat tile[64];
  tile[lane * 2] = bfloat(1.0f);
  tile[lane * 2 + 1] = bfloat(float(lane));
  simdgroup_barrier(mem_flags::mem_threadgroup);
  simdgroup_half8x8 left;
  simdgroup_matrix<half, 8, 8> right;
  simdgroup_bfloat8x8 scale;
  simdgroup_float8x8 sum = make_filled_simdgroup_matrix<float, 8, 8>(0.0f);
  simdgroup_load(left, a, 8);
  simdgroup_load(right, b, 8, ulong2(0, 0), true);
  simdgroup_load(scale, tile);
  simdgroup_multiply_accumulate(sum, left, right, sum);
  simdgroup_multiply_accumulate(sum, left, scale, sum);
  sum.thread_elements()[0] += simd_shuffle_xor(sum.thread_elements()[1], 1);
  simdgroup_store(sum, out, 8);
  if (simd_any(lane == 31)) atomic_fetch_add_explicit(count, 1u, memory_order_relaxed);
}
