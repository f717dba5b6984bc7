// Kernels with a fault each, that a check of the runtime must find; and kernels that look alike and are right.
#include <metal_stdlib>
using namespace metal;

kernel void divergent_sum(device float* out [[buffer(0)]],
                          uint lane [[thread_index_in_simdgroup]]) {
  if (lane < 16) out[lane] = simd_sum(1.0f);
  out[lane] = simd_max(float(lane));
}

kernel void sum_after_return(device float* out [[buffer(0)]],
                             uint lane [[thread_index_in_simdgroup]]) {
  if (lane >= 20) return;
  out[lane] = simd_sum(float(lane + 1));
}

kernel void barrier_after_return(device float* out [[buffer(0)]],
                                 uint i [[thread_index_in_threadgroup]]) {
  if (i >= 32) return;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  out[i] = 1.0f;
}

kernel void two_barriers(device float* out [[buffer(0)]],
                         uint simd [[simdgroup_index_in_threadgroup]]) {
  if (simd == 0)
    threadgroup_barrier(mem_flags::mem_threadgroup);
  else
    threadgroup_barrier(mem_flags::mem_threadgroup);
  out[simd] = 1.0f;
}

// Lanes of a simdgroup hand values to a neighbour: `fence` says whether they wait for each other.
template <bool fence>
kernel void hand_over(device float* out [[buffer(0)]], uint lane [[thread_index_in_simdgroup]]) {
  threadgroup float shared[32];
  shared[lane] = float(lane);
  if (fence) simdgroup_barrier(mem_flags::mem_threadgroup);
  out[lane] = shared[(lane + 31) % 32];
}
template [[host_name("hand_over_unfenced")]] [[kernel]] decltype(hand_over<false>) hand_over<false>;
template [[host_name("hand_over_fenced")]] [[kernel]] decltype(hand_over<true>) hand_over<true>;

// Simdgroups hand values to each other; the order in which they run must not matter.
kernel void order(device uint* out [[buffer(0)]], device atomic_uint* next [[buffer(1)]],
                  uint i [[thread_position_in_grid]]) {
  out[i] = atomic_fetch_add_explicit(next, 1u, memory_order_relaxed);
}

kernel void uninitialised(device uint* out [[buffer(0)]], uint lane [[thread_index_in_simdgroup]]) {
  threadgroup uint shared[64];
  shared[lane] = 0;
  simdgroup_barrier(mem_flags::mem_threadgroup);
  out[lane] = shared[lane + (lane == 31 ? 1 : 0)];
}

kernel void threadgroup_bytes(device uint* out [[buffer(0)]],
                              threadgroup uint* first [[threadgroup(0)]],
                              threadgroup uint* second [[threadgroup(1)]],
                              uint i [[thread_index_in_threadgroup]]) {
  threadgroup uint fixed[4096];
  fixed[i] = i;
  first[i] = 2 * i;
  second[i] = 3 * i;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  out[i] = fixed[31 - i] + first[31 - i] + second[31 - i];
}

kernel void slow(device uint* out [[buffer(0)]], uint group [[threadgroup_position_in_grid]],
                 uint lane [[thread_index_in_simdgroup]]) {
  uint x = lane;
  for (uint k = 0; k < 1000; ++k) x = simd_sum(x) + lane;
  if (lane == 0) out[group] = x | 1;
}
