// What lanes do together: simd functions, barriers, simdgroup matrices, atomics.
#include <metal_stdlib>
using namespace metal;

template <typename T>
kernel void reductions(device T* out [[buffer(0)]], device const T* in [[buffer(1)]],
                       uint i [[thread_position_in_grid]], uint n [[threads_per_grid]]) {
  const T x = in[i];
  out[i] = simd_sum(x);
  out[n + i] = simd_max(x);
  out[2 * n + i] = simd_min(x);
  out[3 * n + i] = simd_prefix_inclusive_sum(x);
  out[4 * n + i] = simd_prefix_exclusive_sum(x);
  out[5 * n + i] = quad_sum(x);
  out[6 * n + i] = simd_broadcast_first(x);
}
template [[host_name("reductions_f32")]] [[kernel]] decltype(reductions<float>) reductions<float>;
template [[host_name("reductions_f16")]] [[kernel]] decltype(reductions<half>) reductions<half>;
template [[host_name("reductions_i32")]] [[kernel]] decltype(reductions<int>) reductions<int>;

kernel void vector_sum(device float4* out [[buffer(0)]], device const float4* in [[buffer(1)]],
                       uint i [[thread_position_in_grid]]) {
  out[i] = simd_sum(in[i]) + simd_shuffle_xor(in[i], 5);
}

kernel void shuffles(device uint* out [[buffer(0)]], uint lane [[thread_index_in_simdgroup]]) {
  const uint x = lane * 3;
  out[lane] = simd_shuffle(x, ushort(31 - lane));
  out[32 + lane] = simd_shuffle_xor(x, 9);
  out[64 + lane] = simd_shuffle_up(x, 3);
  out[96 + lane] = simd_shuffle_down(x, 3);
  out[128 + lane] = simd_shuffle_rotate_up(x, 3);
  out[160 + lane] = simd_shuffle_rotate_down(x, 3);
  out[192 + lane] = simd_shuffle_and_fill_up(x, 1000u + lane, 3);
  out[224 + lane] = simd_shuffle_and_fill_down(x, 1000u + lane, 3);
  out[256 + lane] = simd_broadcast(x, 7);
  out[288 + lane] = uint(ulong(simd_ballot(lane % 3 == 0)));
  out[320 + lane] = uint(simd_any(lane == 5)) + 2 * uint(simd_all(lane < 32)) +
                    4 * uint(simd_any(lane == 32)) + 8 * uint(simd_all(lane < 31));
  out[352 + lane] = simd_or(1u << (lane / 2)) ^ simd_and(lane | 8u) ^ simd_xor(lane);
  out[384 + lane] = quad_shuffle_xor(x, 1) + 1000 * quad_broadcast(x, 2);
  out[416 + lane] = uint(simd_is_first());
}

// A sum over 1..32 simdgroups, through threadgroup memory, several times over.
kernel void group_sum(device float* out [[buffer(0)]], device const float* in [[buffer(1)]],
                      uint index [[thread_index_in_threadgroup]],
                      uint group [[threadgroup_position_in_grid]],
                      uint n [[threads_per_threadgroup]], uint lane [[thread_index_in_simdgroup]],
                      uint simd [[simdgroup_index_in_threadgroup]],
                      uint n_simd [[simdgroups_per_threadgroup]]) {
  threadgroup float sums[32];
  float total = 0.0f;
  for (uint round = 0; round < 3; ++round) {
    const float sum = simd_sum(in[group * n + (index + round) % n]);
    if (lane == 0) sums[simd] = sum;
    threadgroup_barrier(mem_flags::mem_threadgroup);
    for (uint k = 0; k < n_simd; ++k) total += sums[k];
    threadgroup_barrier(mem_flags::mem_threadgroup);
  }
  out[group * n + index] = total;
}

kernel void lane_map(device float* out [[buffer(0)]], device const float* in [[buffer(1)]],
                     uint lane [[thread_index_in_simdgroup]]) {
  simdgroup_float8x8 m;
  simdgroup_load(m, in, 8);
  out[2 * lane] = m.thread_elements()[0];
  out[2 * lane + 1] = m.thread_elements()[1];
  simdgroup_load(m, in, 8, ulong2(0, 0), true);
  simdgroup_store(m, out + 64, 8);
  simdgroup_float8x8 unit(1.0f);
  simdgroup_store(unit, out + 128, 16, ulong2(8, 0));
}

template <typename A, typename D>
kernel void multiply(device D* out [[buffer(0)]], device const A* a [[buffer(1)]],
                     device const A* b [[buffer(2)]], constant uint& depth [[buffer(3)]]) {
  simdgroup_matrix<D, 8, 8> sum = make_filled_simdgroup_matrix<D, 8, 8>(D(1.0f));
  for (uint k = 0; k < depth; k += 8) {
    simdgroup_matrix<A, 8, 8> left, right;
    simdgroup_load(left, a + k, depth);
    simdgroup_load(right, b, 8, ulong2(0, k));
    simdgroup_multiply_accumulate(sum, left, right, sum);
  }
  simdgroup_store(sum, out, 8);
}
template [[host_name(
    "multiply_f32")]] [[kernel]] decltype(multiply<float, float>) multiply<float, float>;
template [[host_name(
    "multiply_f16_f32")]] [[kernel]] decltype(multiply<half, float>) multiply<half, float>;
template [[host_name(
    "multiply_bf16_f32")]] [[kernel]] decltype(multiply<bfloat, float>) multiply<bfloat, float>;
template
    [[host_name("multiply_f16")]] [[kernel]] decltype(multiply<half, half>) multiply<half, half>;

kernel void count(device atomic_uint* total [[buffer(0)]], device atomic_uint* most [[buffer(1)]],
                  uint i [[thread_position_in_grid]]) {
  atomic_fetch_add_explicit(total, 1u, memory_order_relaxed);
  atomic_fetch_max_explicit(most, i, memory_order_relaxed);
}
