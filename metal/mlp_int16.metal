// The MLP's gate and up over int16 rows (int16.h), and what follows them:
//
//   out[row] = int16 row of silu(gate x) * up x
//
// with the products of linear_int16.metal. out (rows) int16 rows of n, in (rows) int16 rows of k, gate
// and up (n, k) in the format of the name; k and n multiples of 32, rows any. `row` and `panel`
// differ in the grid alone: (n / 32, rows) and (n / 32, rows / 128), rounded up, one simdgroup.
#include "activation.h"
#include "int16_dot.h"
#include "kernel_args.h"

template <typename Format, uint kRows>
kernel void mlp_int16(device uchar* out [[buffer(0)]], device const uchar* in [[buffer(1)]],
                      device const uchar* gate [[buffer(2)]], device const uchar* up [[buffer(3)]],
                      constant LinearArgs& args [[buffer(4)]], constant Pass& pass [[buffer(5)]],
                      uint2 group [[threadgroup_position_in_grid]],
                      uint lane [[thread_index_in_simdgroup]]) {
  const uint last_row = min(group.y * kRows + kRows, pass.rows);
  const ulong offset = (group.x * kInt16Qblock + lane) * Format::row_bytes(args.k);
  for (uint row = group.y * kRows; row < last_row; row++) {
    device const uchar* x = in + row * int16_row_bytes(args.k);
    const float g = dot_row<Format>(x, gate + offset, args.k);
    const float result = g * sigmoid(g) * dot_row<Format>(x, up + offset, args.k);
    store_int16(out + row * int16_row_bytes(args.n), args.n, group.x, result, lane);
  }
}

#define MTLQWEN_INSTANCE(NAME, ...)                                                                \
  template [[host_name(NAME)]] [[kernel]] decltype(mlp_int16<__VA_ARGS__>) mlp_int16<__VA_ARGS__>;
MTLQWEN_INSTANCE("mlp_q8_0_int16_row", Int16Q8_0, 1)
MTLQWEN_INSTANCE("mlp_q8_0_int16_panel", Int16Q8_0, 128)
