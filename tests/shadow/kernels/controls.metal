// Kernels without a mistake: the shadow build must report nothing. Launched as those of bugs.metal.
#include <metal_stdlib>

#include "exchange.h"
using namespace metal;

#define ARGUMENTS                                                                                  \
  device const float *x [[buffer(0)]], device float *y [[buffer(1)]],                              \
      device atomic_uint *count [[buffer(2)]], uint i [[thread_position_in_grid]],                 \
      uint t [[thread_index_in_threadgroup]], uint group [[threadgroup_position_in_grid]]

kernel void reversed(ARGUMENTS) {
  threadgroup float s[64];
  s[t] = x[i];
  threadgroup_barrier(mem_flags::mem_threadgroup);
  y[i] = s[63 - t];
}

kernel void reversed_by_simdgroup(ARGUMENTS) {
  threadgroup float s[64];
  s[t] = x[i];
  simdgroup_barrier(mem_flags::mem_threadgroup);
  y[i] = s[t ^ 31] + beside(s, t);
}

kernel void loop(ARGUMENTS) {
  threadgroup float s[64];
  float sum = 0.0f;
  for (uint k = 0; k < 3; k++) {
    s[t] = x[i] + float(k);
    threadgroup_barrier(mem_flags::mem_threadgroup);
    sum += s[63 - t];
    threadgroup_barrier(mem_flags::mem_threadgroup);
  }
  y[i] = sum;
}

// Two arrays in turn need one barrier a round.
kernel void alternating_loop(ARGUMENTS) {
  threadgroup float s[2][64];
  float sum = 0.0f;
  for (uint k = 0; k < 5; k++) {
    s[k % 2][t] = x[i] + float(k);
    threadgroup_barrier(mem_flags::mem_threadgroup);
    sum += s[k % 2][63 - t];
  }
  y[i] = sum;
}

kernel void tree(ARGUMENTS) {
  threadgroup float s[64];
  s[t] = x[i];
  for (uint n = 32; n > 0; n /= 2) {
    threadgroup_barrier(mem_flags::mem_threadgroup);
    if (t < n) s[t] += s[t + n];
  }
  if (t == 0) y[group] = s[0];
}

kernel void through_device_memory(ARGUMENTS) {
  y[i] = x[i];
  threadgroup_barrier(mem_flags::mem_device);
  const float other = y[i ^ 63];
  threadgroup_barrier(mem_flags::mem_device);
  y[i] = other;
}

kernel void both_kinds_of_memory(ARGUMENTS) {
  threadgroup float s[64];
  s[t] = x[i];
  y[i] = x[i];
  threadgroup_barrier(mem_flags::mem_device | mem_flags::mem_threadgroup);
  const float other = y[i ^ 63] + s[63 - t];
  simdgroup_barrier(mem_flags::mem_device | mem_flags::mem_threadgroup);
  if (t == 70) y[i] = other;
}

kernel void counted(ARGUMENTS) {
  const uint before = atomic_fetch_add_explicit(count, 1u, memory_order_relaxed);
  atomic_fetch_max_explicit(count, 7u, memory_order_relaxed);
  y[i] = float(before + atomic_load_explicit(count, memory_order_relaxed));
}

kernel void counted_in_threadgroup(ARGUMENTS) {
  threadgroup atomic_uint n;
  if (t == 0) atomic_store_explicit(&n, 0u, memory_order_relaxed);
  threadgroup_barrier(mem_flags::mem_threadgroup);
  atomic_fetch_add_explicit(&n, t, memory_order_relaxed);
  threadgroup_barrier(mem_flags::mem_threadgroup);
  y[i] = float(atomic_load_explicit(&n, memory_order_relaxed));
}

kernel void summed(ARGUMENTS) {
  threadgroup float s[2];
  const float sum = simd_sum(x[i]);
  if (t % 32 == 0) s[t / 32] = sum;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  y[i] = s[0] + s[1];
}

kernel void neighbouring_bytes(ARGUMENTS) {
  threadgroup uchar s[64];
  s[t] = uchar(t);
  ((device uchar*)y)[i] = s[t];
}

kernel void all_read_one(ARGUMENTS) { y[i] = x[0] + x[i ^ 255]; }

kernel void one_thread_alone(ARGUMENTS) {
  threadgroup float s[4];
  if (t == 5) {
    s[0] = x[i];
    s[0] += s[0];
    y[group] = s[0];
    y[group] += s[0];
  }
}

constant float kTable[4] = {1.0f, 2.0f, 3.0f, 4.0f};
kernel void local_and_constant_memory(ARGUMENTS) {
  float local[8];
  for (uint k = 0; k < 8; k++) local[k] = x[i] * float(k);
  y[i] = local[t % 8] + kTable[t % 4];
}

kernel void threadgroup_argument(ARGUMENTS, threadgroup float* s [[threadgroup(0)]]) {
  s[t] = x[i];
  threadgroup_barrier(mem_flags::mem_threadgroup);
  y[i] = s[63 - t];
}
