// Linears over int16 rows (int16.h):
//
//   out[row][n] (+)= sum_b dot(q, w) * weight scale * row scale
//
// b counts qblocks of 32 elements of k; the dot of a qblock's bytes is exact. out (rows, n) float,
// in (rows) int16 rows of k, weight (n, k) in the format of the name; k a multiple of 32, n and rows
// any. `row` and `panel` differ in the grid alone: (n / 64, rows) and (n / 32, rows / 128), rounded
// up, 32 threads.
#include "int16_dot.h"
#include "kernel_args.h"

constant bool kAccumulate [[function_constant(1)]];  // add to out

enum : uint { kThreads = 32 };

template <typename Format, uint kOutputs, uint kRows>
kernel void linear_int16(device float* out [[buffer(0)]], device const uchar* in [[buffer(1)]],
                         device const uchar* weight [[buffer(2)]],
                         constant LinearArgs& args [[buffer(3)]], constant Pass& pass [[buffer(4)]],
                         uint2 group [[threadgroup_position_in_grid]],
                         uint thread_idx [[thread_index_in_threadgroup]]) {
  const uint last_row = min(group.y * kRows + kRows, pass.rows);
  const uint last = min(group.x * kOutputs + kOutputs, args.n);
  for (uint row = group.y * kRows; row < last_row; row++) {
    device const uchar* x = in + row * int16_row_bytes(args.k);
    for (uint o = group.x * kOutputs + thread_idx; o < last; o += kThreads) {
      const float sum = dot_row<Format>(x, weight + o * Format::row_bytes(args.k), args.k);
      device float* target = out + ulong(row) * args.n + o;
      *target = kAccumulate ? *target + sum : sum;
    }
  }
}

#define MTLQWEN_INSTANCE(NAME, ...)                                                                \
  template [[host_name(                                                                            \
      NAME)]] [[kernel]] decltype(linear_int16<__VA_ARGS__>) linear_int16<__VA_ARGS__>;
MTLQWEN_INSTANCE("linear_q8_0_int16_row", Int16Q8_0, 64, 1)
MTLQWEN_INSTANCE("linear_q8_0_int16_panel", Int16Q8_0, 32, 128)
