// out[row][n] = hash of the whole input row, the matrix and n. Serves any launch: a group
// takes its part of the rows and outputs, and its first thread does all the work.
#include "hash.h"

constant bool kAccumulate [[function_constant(1)]];

template <uint kName>
kernel void linear(device uint* out [[buffer(0)]], device const uint* in [[buffer(1)]],
                   device const uint* weight [[buffer(2)]], constant LinearArgs& args [[buffer(3)]],
                   constant Pass& pass [[buffer(4)]], uint2 group [[threadgroup_position_in_grid]],
                   uint2 groups [[threadgroups_per_grid]],
                   uint thread_idx [[thread_index_in_threadgroup]]) {
  if (thread_idx != 0) return;
  const uint rows = (pass.rows + groups.y - 1) / groups.y;
  const uint outputs = (args.n + groups.x - 1) / groups.x;
  const uint last_row = min(group.y * rows + rows, pass.rows);
  const uint last = min(group.x * outputs + outputs, args.n);
  for (uint row = group.y * rows; row < last_row; row++) {
    const uint seen = mix(digest(in + row * args.k, args.k), weight[0]);
    for (uint n = group.x * outputs; n < last; n++) {
      device uint* to = out + row * args.n + n;
      *to = kAccumulate ? mix(*to, mix(seen, n)) : mix(seen, n);
    }
  }
}

#define MTLQWEN_INSTANCE(NAME, NUMBER)                                                             \
  template [[host_name("linear_f32_" NAME)]] [[kernel]] decltype(linear<NUMBER>) linear<NUMBER>;
MTLQWEN_INSTANCE("decode_whole_1", 1)
MTLQWEN_INSTANCE("decode_whole_2", 2)
MTLQWEN_INSTANCE("decode_whole_4", 4)
MTLQWEN_INSTANCE("decode_whole_8", 8)
