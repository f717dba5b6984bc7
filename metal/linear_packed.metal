// Linears over the formats of packed.h in the order of CPU cores; GPUs run linear_decode.metal and
// linear_tile.metal.
//
//   linear_packed_whole       out[row][n] (+)= sum_k in[row][k] * weight[n][k], float rows
//   linear_packed_int16_*     the same over int16 rows (packed_dot.h)
//
// Shapes and grids of the latter are those of linear_int16.metal; `whole` has (n / 64, 1) groups of 32
// threads. k is a multiple of the format's qblock.
#include "packed_dot.h"

constant bool kAccumulate [[function_constant(1)]];  // add to out

enum : uint { kThreads = 32, kWholeOutputs = 64 };

static void put(device float* target, float sum) { *target = kAccumulate ? *target + sum : sum; }

kernel void linear_packed_whole(device float* out [[buffer(0)]],
                                device const float* in [[buffer(1)]],
                                device const uchar* weight [[buffer(2)]],
                                constant LinearArgs& args [[buffer(3)]],
                                constant Pass& pass [[buffer(4)]],
                                uint2 group [[threadgroup_position_in_grid]],
                                uint thread_idx [[thread_index_in_threadgroup]]) {
  const uint last = min(group.x * kWholeOutputs + kWholeOutputs, args.n);
  for (uint row = 0; row < pass.rows; row++) {
    device const float4* x = (device const float4*)(in + ulong(row) * args.k);
    for (uint o = group.x * kWholeOutputs + thread_idx; o < last; o += kThreads) {
      device const uchar* weights = weight + o * packed_row_bytes(kFormat, args.k);
      float4 sums = float4(0.0f);
      for (uint k = 0; k < args.k; k += 16) {
        const Codes codes = packed_codes(kFormat, weights, k);
        for (uint i = 0; i < 4; i++) sums = fma(weights_of(codes, i), x[k / 4 + i], sums);
      }
      put(out + ulong(row) * args.n + o, fold(sums));
    }
  }
}

template <uint kOutputs, uint kRows>
kernel void
linear_packed_int16(device float* out [[buffer(0)]], device const uchar* in [[buffer(1)]],
                    device const uchar* weight [[buffer(2)]],
                    constant LinearArgs& args [[buffer(3)]], constant Pass& pass [[buffer(4)]],
                    uint2 group [[threadgroup_position_in_grid]],
                    uint thread_idx [[thread_index_in_threadgroup]]) {
  const uint last_row = min(group.y * kRows + kRows, pass.rows);
  const uint last = min(group.x * kOutputs + kOutputs, args.n);
  for (uint row = group.y * kRows; row < last_row; row++) {
    device const uchar* x = in + row * int16_row_bytes(args.k);
    for (uint o = group.x * kOutputs + thread_idx; o < last; o += kThreads) {
      device const uchar* weights = weight + o * packed_row_bytes(kFormat, args.k);
      put(out + ulong(row) * args.n + o, dot_row(kFormat, x, weights, args.k));
    }
  }
}

#define MTLQWEN_INSTANCE(NAME, ...)                                                                \
  template [[host_name(NAME)]] [[kernel]] decltype(linear_packed_int16<__VA_ARGS__>)               \
      linear_packed_int16<__VA_ARGS__>;
MTLQWEN_INSTANCE("linear_packed_int16_row", 64, 1)
MTLQWEN_INSTANCE("linear_packed_int16_panel", 32, 128)
