// Right: conversions, swizzles, casts between address spaces of values, punned pointers, a struct with member functions.
#include <metal_stdlib>
using namespace metal;

struct Block {
  half scale;
  char values[32];
};

struct Range {
  uint first, count;
  bool has(uint i) const thread { return i >= first && i < first + count; }
  void grow() thread { count += 1; }
};

struct Format {
  static uint size() { return 4; }
  template <typename W>
  static W load(device const float* from) {
    return *(device const W*)from;
  }
  template <typename W>
  W scaled(W x) const thread {
    return x * 2.0f;
  }
};

template <typename T, int N>
inline float total(vec<T, N> v) {
  float sum = 0.0f;
  for (int k = 0; k < N; ++k) sum += float(v[k]);
  return sum;
}

template <typename T>
kernel void vectors(device T* out [[buffer(0)]], device const Block* blocks [[buffer(1)]],
                    constant Range& bounds [[buffer(2)]], uint3 at [[thread_position_in_grid]],
                    ushort2 group [[threadgroup_position_in_grid]]) {
  const uint i = at.x + uint(group.y);
  device const packed_char4* quads = (device const packed_char4*)blocks[i].values;
  const char4 q = char4(quads[0]);
  float4 x = float4(q) * float(blocks[i].scale);
  x.xy = x.wz;
  x.yzw += 1.0f;
  Range range = bounds;
  range.grow();
  const half4 narrow = half4(x);
  const float3 mixed = float3(x.xy, select(0.0f, 1.0f, range.has(i)));
  const uint bits = as_type<uint>(mixed.z) + popcount(i);
  const thread float4& alias = x;
  const Format format = {};
  x += format.scaled(Format::load<float4>((device const float*)blocks)) * float(Format::size());
  out[i] = T(total(narrow) + total(alias) + dot(mixed, mixed.zyx) + precise::exp(-abs(x.x)) +
             float(bits) + float(1.5h) + (all(x > 0.0f) ? 1.0f : 0.0f));
}

template [[host_name("vectors_f32")]] kernel void vectors<float>(device float*, device const Block*,
                                                                 constant Range&, uint3, ushort2);
template [[host_name("vectors_bf16")]] [[kernel]] decltype(vectors<bfloat>) vectors<bfloat>;
