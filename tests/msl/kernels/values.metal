// What one thread computes: vectors, conversions, literals, constants, positions.
#include <metal_stdlib>
using namespace metal;

constant bool kBool [[function_constant(0)]];
constant int kInt [[function_constant(1)]];
constant uint kUint [[function_constant(2)]];
constant float kFloat [[function_constant(3)]];
constant half kHalf [[function_constant(4)]];
constant ushort kUshort [[function_constant(62)]];
constant uint kUnused [[function_constant(63)]];

inline uint through_helper() { return kUint + 1; }

kernel void constants(device float* out [[buffer(0)]]) {
  out[0] = kBool ? 1.0f : 0.0f;
  out[1] = float(kInt);
  out[2] = float(through_helper());
  out[3] = kFloat;
  out[4] = float(kHalf);
  out[5] = float(kUshort);
}

// Reads the constant over and over: 1 only if it never changes.
kernel void constant_is_stable(device uint* out [[buffer(0)]],
                               constant uint& expected [[buffer(1)]],
                               uint i [[thread_position_in_grid]]) {
  uint same = 1;
  for (uint k = 0; k < 200; ++k) {
    simdgroup_barrier(mem_flags::mem_none);
    same &= uint(kUint == expected);
  }
  out[i] = same;
}

kernel void swizzles(device float4* out [[buffer(0)]], device const float4* in [[buffer(1)]]) {
  float4 v = in[0];
  out[0] = v.wzyx;
  out[1] = float4(v.xy, v.rr);
  v.yw = v.xz * 2.0f;
  out[2] = v;
  v.xyz += float3(1.0f, 2.0f, 3.0f);
  v.a = -v.b;
  out[3] = v;
  v[1] = 7.0f;
  out[4] = float4(v.y, float3(packed_float3(v.xyz)));
  out[5] = select(v, float4(0.0f), v > 1.0f);
  out[6] = float4(float3(0.5f), dot(v.xy, v.zw));
  out[7] = clamp(v, -1.0f, 1.0f) + fma(v, v, v) + max(v, 0.0f) - abs(v);
}

kernel void conversions(device int* out [[buffer(0)]], device const float* in [[buffer(1)]]) {
  out[0] = int(in[0]);
  out[1] = as_type<int>(in[0]);
  out[2] = int(char(uchar(200)));
  out[3] = int4(float4(in[0]) * float4(1.0f, -1.0f, 2.0f, 0.5f)).z;
  out[4] = int(popcount(0xF0F0u) + clz(1u) + ctz(8u) + reverse_bits(1u) / 0x80000000u);
  out[5] = int(as_type<ushort>(1.5h));
  out[6] = int(as_type<ushort>(1.5bf));
  out[7] = int(mulhi(0x80000000u, 6u) + rotate(0x80000001u, 1u) + extract_bits(0xABCDu, 4u, 8u));
}

// out: sum, product, quotient, square root of each pair, rounded after every operation.
template <typename T>
kernel void arithmetic(device T* out [[buffer(0)]], device const T* a [[buffer(1)]],
                       device const T* b [[buffer(2)]], uint i [[thread_position_in_grid]],
                       uint n [[threads_per_grid]]) {
  out[i] = a[i] + b[i];
  out[n + i] = a[i] * b[i];
  out[2 * n + i] = a[i] / b[i];
  out[3 * n + i] = sqrt(abs(a[i]));
}
template [[host_name("arithmetic_f16")]] kernel void
arithmetic<half>(device half*, device const half*, device const half*, uint, uint);
template
    [[host_name("arithmetic_bf16")]] [[kernel]] decltype(arithmetic<bfloat>) arithmetic<bfloat>;
template [[host_name("arithmetic_f32")]] [[kernel]] decltype(arithmetic<float>) arithmetic<float>;

kernel void narrow(device half* h [[buffer(0)]], device bfloat* b [[buffer(1)]],
                   device const float* in [[buffer(2)]], uint i [[thread_position_in_grid]]) {
  h[i] = half(in[i]);
  b[i] = bfloat(in[i]);
}

kernel void positions(device uint* out [[buffer(0)]], uint3 at [[thread_position_in_grid]],
                      ushort3 in_group [[thread_position_in_threadgroup]],
                      uint index [[thread_index_in_threadgroup]],
                      uint3 group [[threadgroup_position_in_grid]], uint3 grid [[threads_per_grid]],
                      uint2 size [[threads_per_threadgroup]],
                      uint3 groups [[threadgroups_per_grid]],
                      ushort lane [[thread_index_in_simdgroup]],
                      uint simd [[simdgroup_index_in_threadgroup]],
                      uint n_simd [[simdgroups_per_threadgroup]]) {
  device uint* row = out + ((at.z * grid.y + at.y) * grid.x + at.x) * 12;
  row[0] = index;
  row[1] = in_group.x + 100 * in_group.y + 10000 * in_group.z;
  row[2] = group.x + 100 * group.y + 10000 * group.z;
  row[3] = grid.x + 100 * grid.y + 10000 * grid.z;
  row[4] = size.x + 100 * size.y;
  row[5] = groups.x + 100 * groups.y + 10000 * groups.z;
  row[6] = lane;
  row[7] = simd;
  row[8] = n_simd;
}
