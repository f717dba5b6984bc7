// The MLP's gate and up over int16 rows, and what follows them, for packed weights:
//
//   out[row] = int16 row of silu(gate x) * up x
//
// with the products of packed_dot.h. Shapes and grids are those of mlp_int16.metal; k is a multiple of
// both formats' qblocks.
#include "activation.h"
#include "packed_dot.h"

constant uint kUpFormat [[function_constant(3)]];  // PackedFormat of `up`; kFormat is the gate's

template <uint kRows>
kernel void
mlp_packed_int16(device uchar* out [[buffer(0)]], device const uchar* in [[buffer(1)]],
                 device const uchar* gate [[buffer(2)]], device const uchar* up [[buffer(3)]],
                 constant LinearArgs& args [[buffer(4)]], constant Pass& pass [[buffer(5)]],
                 uint2 group [[threadgroup_position_in_grid]],
                 uint lane [[thread_index_in_simdgroup]]) {
  const uint last_row = min(group.y * kRows + kRows, pass.rows);
  const uint o = group.x * kInt16Qblock + lane;
  device const uchar* gates = gate + o * packed_row_bytes(kFormat, args.k);
  device const uchar* ups = up + o * packed_row_bytes(kUpFormat, args.k);
  for (uint row = group.y * kRows; row < last_row; row++) {
    device const uchar* x = in + row * int16_row_bytes(args.k);
    const float g = dot_row(kFormat, x, gates, args.k);
    const float result = g * sigmoid(g) * dot_row(kUpFormat, x, ups, args.k);
    store_int16(out + row * int16_row_bytes(args.n), args.n, group.x, result, lane);
  }
}

#define MTLQWEN_INSTANCE(NAME, ROWS)                                                               \
  template [[host_name(NAME)]] [[kernel]] decltype(mlp_packed_int16<ROWS>) mlp_packed_int16<ROWS>;
MTLQWEN_INSTANCE("mlp_packed_int16_row", 1)
MTLQWEN_INSTANCE("mlp_packed_int16_panel", 128)
