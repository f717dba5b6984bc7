// out[row][n] = hash of the whole input row, the matrix and n. Serves any launch: a group
// takes its part of the rows and outputs, and its first thread does all the work.
#include "hash.h"

constant bool kAccumulate [[function_constant(1)]];

// kWords: of an input row, for each 32 elements.
template <uint kName, uint kWords>
kernel void linear(device uint* out [[buffer(0)]], device const uint* in [[buffer(1)]],
                   device const uint* weight [[buffer(2)]], constant LinearArgs& args [[buffer(3)]],
                   constant Pass& pass [[buffer(4)]], uint2 group [[threadgroup_position_in_grid]],
                   uint2 groups [[threadgroups_per_grid]],
                   uint thread_idx [[thread_index_in_threadgroup]]) {
  if (thread_idx != 0) return;
  const uint words = args.k / 32 * kWords;
  const uint rows = (pass.rows + groups.y - 1) / groups.y;
  const uint outputs = (args.n + groups.x - 1) / groups.x;
  const uint last_row = min(group.y * rows + rows, pass.rows);
  const uint last = min(group.x * outputs + outputs, args.n);
  for (uint row = group.y * rows; row < last_row; row++) {
    const uint seen = mix(digest(in + row * words, words), weight[0]);
    for (uint n = group.x * outputs; n < last; n++) {
      device uint* to = out + row * args.n + n;
      *to = kAccumulate ? mix(*to, mix(seen, n)) : mix(seen, n);
    }
  }
}

// The int16 row of swiglu's hashes of the two linears. A group takes its part of the rows and of the
// qblocks, as above.
template <uint kName>
kernel void mlp(device uint* out [[buffer(0)]], device const uint* in [[buffer(1)]],
                device const uint* gate [[buffer(2)]], device const uint* up [[buffer(3)]],
                constant LinearArgs& args [[buffer(4)]], constant Pass& pass [[buffer(5)]],
                uint2 group [[threadgroup_position_in_grid]],
                uint2 groups [[threadgroups_per_grid]],
                uint thread_idx [[thread_index_in_threadgroup]]) {
  if (thread_idx != 0) return;
  const uint words = int16_words(args.k);
  const uint rows = (pass.rows + groups.y - 1) / groups.y;
  const uint qblocks = (args.n / 32 + groups.x - 1) / groups.x;
  const uint last_row = min(group.y * rows + rows, pass.rows);
  const uint last = min(group.x * qblocks + qblocks, args.n / 32);
  for (uint row = group.y * rows; row < last_row; row++) {
    const uint seen = digest(in + row * words, words);
    for (uint qblock = group.x * qblocks; qblock < last; qblock++) {
      uint x[32];
      for (uint i = 0; i < 32; i++) {
        const uint n = 32 * qblock + i;
        x[i] = mix(mix(mix(seen, gate[0]), n), mix(mix(seen, up[0]), n));
      }
      store_qblock(out + row * int16_words(args.n), args.n, qblock, x);
    }
  }
}

#define MTLQWEN_INSTANCE(NAME, KERNEL, ...)                                                        \
  template [[host_name(NAME)]] [[kernel]] decltype(KERNEL<__VA_ARGS__>) KERNEL<__VA_ARGS__>;
MTLQWEN_INSTANCE("linear_f32_decode_whole_1", linear, 1, 32)
MTLQWEN_INSTANCE("linear_f32_decode_whole_2", linear, 2, 32)
MTLQWEN_INSTANCE("linear_f32_decode_whole_4", linear, 4, 32)
MTLQWEN_INSTANCE("linear_f32_decode_whole_8", linear, 8, 32)
MTLQWEN_INSTANCE("linear_q8_0_int16_row", linear, 1, 19)
MTLQWEN_INSTANCE("linear_q8_0_int16_panel", linear, 2, 19)
MTLQWEN_INSTANCE("mlp_q8_0_int16_row", mlp, 1)
MTLQWEN_INSTANCE("mlp_q8_0_int16_panel", mlp, 2)
