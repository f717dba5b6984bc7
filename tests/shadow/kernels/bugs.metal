// One mistake in each kernel. A comment `found: KIND ...` stands on every line that the shadow build
// must report, with all kinds that it must name there; it must report nothing else. Launched with 4
// threadgroups of 64 threads; x and y hold an element for each thread, `count` one number.
#include <metal_stdlib>

#include "exchange.h"
using namespace metal;

#define ARGUMENTS                                                                                  \
  device const float *x [[buffer(0)]], device float *y [[buffer(1)]],                              \
      device atomic_uint *count [[buffer(2)]], uint i [[thread_position_in_grid]],                 \
      uint t [[thread_index_in_threadgroup]], uint group [[threadgroup_position_in_grid]]

// Threadgroup memory that is written and may be used, so that nothing but the planted mistake shows.
#define READY(s)                                                                                   \
  s[t] = 0.0f;                                                                                     \
  threadgroup_barrier(mem_flags::mem_threadgroup)

kernel void no_barrier(ARGUMENTS) {
  threadgroup float s[64];
  READY(s);
  s[t] = x[i];       // found: RACE
  y[i] = s[t ^ 32];  // found: RACE
}

// Threads that run in the order of their numbers find what they expect.
kernel void hidden_by_order(ARGUMENTS) {
  threadgroup float s[64];
  s[t] = x[i];
  y[i] = s[t == 0 ? 0 : t - 1];  // found: RACE SIMDGROUP_RACE
}

kernel void no_simdgroup_barrier(ARGUMENTS) {
  threadgroup float s[64];
  READY(s);
  s[t] = x[i];      // found: SIMDGROUP_RACE
  y[i] = s[t ^ 1];  // found: SIMDGROUP_RACE
}

// The place in exchange.h belongs to the line that calls it.
kernel void no_simdgroup_barrier_in_helper(ARGUMENTS) {
  threadgroup float s[64];
  READY(s);
  s[t] = x[i];          // found: SIMDGROUP_RACE
  y[i] = beside(s, t);  // found: SIMDGROUP_RACE
}

// Cross-lane operations order no memory.
kernel void simd_sum_is_no_barrier(ARGUMENTS) {
  threadgroup float s[64];
  READY(s);
  s[t] = x[i];
  const float sum = simd_sum(x[i]);
  y[i] = sum + s[t ^ 1];  // found: SIMDGROUP_RACE
}

kernel void simdgroup_barrier_between_simdgroups(ARGUMENTS) {
  threadgroup float s[64];
  READY(s);
  s[t] = x[i];  // found: RACE
  simdgroup_barrier(mem_flags::mem_threadgroup);
  y[i] = s[t ^ 32];  // found: RACE
}

kernel void device_flag_for_threadgroup_memory(ARGUMENTS) {
  threadgroup float s[64];
  READY(s);
  s[t] = x[i];
  threadgroup_barrier(mem_flags::mem_device);
  y[i] = s[63 - t];  // found: MEM_FLAGS
}

kernel void threadgroup_flag_for_device_memory(ARGUMENTS) {
  y[i] = x[i];
  threadgroup_barrier(mem_flags::mem_threadgroup);
  const float other = y[i ^ 63];  // found: MEM_FLAGS
  threadgroup_barrier(mem_flags::mem_device);
  y[i] = other;
}

kernel void no_flag(ARGUMENTS) {
  threadgroup float s[64];
  READY(s);
  s[t] = x[i];
  threadgroup_barrier(mem_flags::mem_none);
  y[i] = s[63 - t];  // found: MEM_FLAGS
}

kernel void device_flag_in_simdgroup(ARGUMENTS) {
  threadgroup float s[64];
  READY(s);
  s[t] = x[i];
  simdgroup_barrier(mem_flags::mem_device);
  y[i] = s[t ^ 1];  // found: MEM_FLAGS
}

// The next write of s does not wait for the readers of this one.
kernel void no_second_barrier_in_loop(ARGUMENTS) {
  threadgroup float s[64];
  float sum = 0.0f;
  for (uint k = 0; k < 3; k++) {
    s[t] = x[i] + float(k);  // found: RACE
    threadgroup_barrier(mem_flags::mem_threadgroup);
    sum += s[63 - t];  // found: RACE
  }
  y[i] = sum;
}

kernel void no_second_simdgroup_barrier_in_loop(ARGUMENTS) {
  threadgroup float s[64];
  float sum = 0.0f;
  for (uint k = 0; k < 3; k++) {
    s[t] = x[i] + float(k);  // found: SIMDGROUP_RACE
    simdgroup_barrier(mem_flags::mem_threadgroup);
    sum += s[t ^ 31];  // found: SIMDGROUP_RACE
  }
  y[i] = sum;
}

// A reader that the writer's own simdgroup cannot see.
kernel void read_by_all_then_written(ARGUMENTS) {
  threadgroup float s[64];
  READY(s);
  const float all = s[0] + s[40];
  simdgroup_barrier(mem_flags::mem_threadgroup);
  if (t == 3) s[0] = x[i];  // found: RACE
  y[i] = all;
}

kernel void lost_update(ARGUMENTS) {
  threadgroup float s[64];
  READY(s);
  s[5] += x[i];  // found: RACE SIMDGROUP_RACE
  threadgroup_barrier(mem_flags::mem_threadgroup);
  y[i] = s[5];
}

kernel void two_write_the_same_value(ARGUMENTS) {
  threadgroup float s[64];
  s[t / 2] = 1.0f;  // found: SIMDGROUP_RACE
  threadgroup_barrier(mem_flags::mem_threadgroup);
  y[i] = s[t / 2];
}

// One byte of what the lane beside reads.
kernel void byte_of_a_word(ARGUMENTS) {
  threadgroup float s[64];
  READY(s);
  ((threadgroup uchar*)s)[4 * (t ^ 1) + 2] = 1;  // found: SIMDGROUP_RACE
  y[i] = s[t];                                   // found: SIMDGROUP_RACE
}

kernel void word_of_a_half(ARGUMENTS) {
  threadgroup float s[64];
  READY(s);
  s[t] = x[i];                                            // found: SIMDGROUP_RACE
  y[i] = float(((threadgroup half*)s)[2 * (t ^ 1) + 1]);  // found: SIMDGROUP_RACE
}

// Three bytes of the word are written.
kernel void uninitialised_byte(ARGUMENTS) {
  threadgroup float s[64];
  for (uint k = 0; k < 3; k++) ((threadgroup uchar*)s)[4 * t + k] = 0;
  y[i] = s[t];  // found: UNINITIALISED
}

kernel void uninitialised_element(ARGUMENTS) {
  threadgroup float s[64];
  if (t < 63) s[t] = x[i];
  threadgroup_barrier(mem_flags::mem_threadgroup);
  y[i] = s[63 - t];  // found: UNINITIALISED
}

// What an earlier threadgroup left is not initialised.
kernel void initialised_by_another_threadgroup(ARGUMENTS) {
  threadgroup float s[64];
  if (group == 0) s[t] = x[i];
  threadgroup_barrier(mem_flags::mem_threadgroup);
  y[i] = s[63 - t];  // found: UNINITIALISED
}

kernel void uninitialised_counter(ARGUMENTS) {
  threadgroup float s[64];
  s[t] += x[i];  // found: UNINITIALISED
  y[i] = s[t];
}

kernel void read_past_buffer(ARGUMENTS) {
  y[i] = x[i + 1];  // found: OUT_OF_BOUNDS
}

kernel void read_before_buffer(ARGUMENTS) {
  y[i] = x[int(i) - 1];  // found: OUT_OF_BOUNDS
}

kernel void write_past_buffer(ARGUMENTS) {
  y[i + 1] = x[i];  // found: OUT_OF_BOUNDS
}

// Its first element lies inside.
kernel void vector_beyond_buffer(ARGUMENTS) {
  device const float4* last = (device const float4*)(x + i);
  if (i == 255) y[i] = (*last).x;  // found: OUT_OF_BOUNDS
}

kernel void read_past_array(ARGUMENTS) {
  threadgroup float s[64];
  READY(s);
  y[i] = s[t + 1];  // found: OUT_OF_BOUNDS
}

// Into the array behind it, were there no gap.
kernel void write_past_array(ARGUMENTS) {
  threadgroup float s[64];
  threadgroup float next[64];
  READY(s);
  next[t] = 0.0f;
  s[t + 1] = x[i];  // found: OUT_OF_BOUNDS
  y[i] = next[t];
}

kernel void write_past_threadgroup_argument(ARGUMENTS, threadgroup float* s [[threadgroup(0)]]) {
  s[t == 0 ? 64 : t] = x[i];  // found: OUT_OF_BOUNDS
}

kernel void threadgroups_write_one_element(ARGUMENTS) {
  if (t == 0) y[0] = x[i];  // found: THREADGROUPS
}

kernel void threadgroup_reads_what_another_writes(ARGUMENTS) {
  y[i] = x[i];
  if (t == 0 && group > 0) y[i] = y[i - 64];  // found: THREADGROUPS
}

kernel void threadgroup_writes_what_another_read(ARGUMENTS) {
  float next = 0.0f;
  if (t == 0 && group < 3) next = y[i + 64];
  y[i] = next;  // found: THREADGROUPS
}

kernel void lost_update_between_threadgroups(ARGUMENTS) {
  if (t == 0) y[0] += x[i];  // found: THREADGROUPS
}

// Barriers order the threads of a threadgroup only.
kernel void barrier_between_threadgroups(ARGUMENTS) {
  if (t == 0) y[group] = x[i];
  threadgroup_barrier(mem_flags::mem_device);
  if (t == 1 && group > 0) y[group] = y[group - 1];  // found: THREADGROUPS
}

kernel void plain_read_of_atomic(ARGUMENTS) {
  if (i > 1) return;
  atomic_fetch_add_explicit(count, 1u, memory_order_relaxed);  // found: SIMDGROUP_RACE
  y[i] = float(*(device uint*)count);                          // found: SIMDGROUP_RACE
}
