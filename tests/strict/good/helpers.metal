// Right, though it looks like something wrong: barriers, simd operations and recursion-like calls in helper functions.
#include <metal_stdlib>
using namespace metal;

constant constexpr float kTable[4] = {0.0f, 0.5f, 1.0f, 2.0f};
constant uint kRows [[function_constant(0)]];
constant bool kFlip [[function_constant(63)]];

// A name that is a keyword elsewhere, a member called like a swizzle, a nested template.
struct Pair {
  float local, xy;
};

template <typename T>
inline T widest(T a, T b) {
  return a < b ? b : a;
}
// An overload calls the other: no recursion.
inline float widest(float a, float b, float c) { return widest(widest(a, b), c); }

// A template that ends: each instantiation is another function.
template <int N>
inline float halves(float x) {
  return halves<N - 1>(x * 0.5f);
}
template <>
inline float halves<0>(float x) {
  return x;
}

inline float meet(threadgroup float* shared, float x, uint lane) {
  shared[lane] = x;
  threadgroup_barrier(mem_flags::mem_threadgroup | mem_flags::mem_device);
  const float sum = simd_sum(shared[31 - lane]);
  simdgroup_barrier(mem_flags::mem_threadgroup);
  return kFlip ? -sum : sum;
}

kernel void helpers(device float* out [[buffer(0)]], constant Pair& pair [[buffer(30)]],
                    threadgroup float* dynamic [[threadgroup(7)]],
                    uint i [[thread_position_in_grid]], uint lane [[thread_index_in_simdgroup]]) {
  // 32768 bytes to the last one.
  threadgroup float shared[32 * 255];
  threadgroup uint counts[2][16];
  const float local = widest(pair.local, pair.xy, kTable[lane % 4]);
  counts[lane % 2][lane / 2] = lane;
  out[i] = meet(shared, local, lane) + meet(dynamic, halves<3>(local), lane) + float(kRows);
  out[i] += float(counts[0][0]);
}
