// Between the passes of a draft: copies of words, and ids compared as metal/draft.metal does.
#include "hash.h"

inline void copy_words(device uint* to, device const uint* from, uint n, uint lane) {
  for (uint i = lane; i < n; i += 32) to[i] = from[i];
}

kernel void place_columns(device uint* out [[buffer(0)]], device const uint* in [[buffer(1)]],
                          constant PlaceArgs& args [[buffer(2)]], constant Pass& pass [[buffer(3)]],
                          uint2 group [[threadgroup_position_in_grid]],
                          uint lane [[thread_index_in_simdgroup]]) {
  copy_words(out + group.y * args.stride + args.first, in + group.y * args.dim, args.dim, lane);
}

kernel void place_columns_int16(device uint* out [[buffer(0)]], device const uint* in [[buffer(1)]],
                                constant PlaceArgs& args [[buffer(2)]],
                                constant Pass& pass [[buffer(3)]],
                                uint2 group [[threadgroup_position_in_grid]],
                                uint lane [[thread_index_in_simdgroup]]) {
  device uint* row = out + group.y * int16_words(args.stride);
  for (uint qblock = lane; qblock < args.dim / 32; qblock += 32) {
    uint x[32];
    for (uint j = 0; j < 32; j++) x[j] = in[group.y * args.dim + 32 * qblock + j];
    store_qblock(row, args.stride, args.first / 32 + qblock, x);
  }
}

kernel void shift_rows(device uint* out [[buffer(0)]], device const uint* in [[buffer(1)]],
                       device const uint* banks [[buffer(2)]],
                       device const QueryArgs* queries [[buffer(3)]],
                       device const uint* row_query [[buffer(4)]],
                       constant SeedArgs& args [[buffer(5)]], constant Pass& pass [[buffer(6)]],
                       uint2 group [[threadgroup_position_in_grid]],
                       uint lane [[thread_index_in_simdgroup]]) {
  device const QueryArgs& query = queries[row_query[group.y]];
  device uint* to = out + group.y * args.dim;
  if (group.y != query.first_row) {
    copy_words(to, in + (group.y - 1) * args.dim, args.dim, lane);
  } else if (query.kv_valid > 0) {
    copy_words(to, banks + query.bank * args.bank_floats + args.seed_offset, args.dim, lane);
  } else {
    for (uint i = lane; i < args.dim; i += 32) to[i] = 0;
  }
}

kernel void keep_seeds(device uint* banks [[buffer(0)]], device const uint* in [[buffer(1)]],
                       device const QueryArgs* queries [[buffer(2)]],
                       device const StateWriteArgs* writes [[buffer(3)]],
                       constant SeedArgs& args [[buffer(4)]], constant Pass& pass [[buffer(5)]],
                       uint2 group [[threadgroup_position_in_grid]],
                       uint lane [[thread_index_in_simdgroup]]) {
  device const StateWriteArgs& write = writes[group.y];
  const uint row = queries[write.query].first_row + write.rows - 1;
  copy_words(banks + write.bank * args.bank_floats + args.seed_offset, in + row * args.dim,
             args.dim, lane);
}

kernel void keep_taped_seeds(device uint* banks [[buffer(0)]], device const uint* in [[buffer(1)]],
                             device const QueryArgs* queries [[buffer(2)]],
                             device const VerifyArgs* verifies [[buffer(3)]],
                             device const uint* accepted [[buffer(4)]],
                             constant SeedArgs& args [[buffer(5)]],
                             constant Pass& pass [[buffer(6)]],
                             uint2 group [[threadgroup_position_in_grid]],
                             uint lane [[thread_index_in_simdgroup]]) {
  device const VerifyArgs& check = verifies[group.y];
  const uint row = queries[check.query].first_row + accepted[group.y];
  copy_words(banks + check.bank * args.bank_floats + args.seed_offset, in + row * args.dim,
             args.dim, lane);
}

kernel void scatter_ids(device int* out [[buffer(0)]], device const int* ids [[buffer(1)]],
                        device const uint* places [[buffer(2)]],
                        uint2 group [[threadgroup_position_in_grid]],
                        uint lane [[thread_index_in_simdgroup]]) {
  if (lane == 0) out[places[group.y]] = ids[group.y];
}

kernel void
verify(device uint* accepted [[buffer(0)]], device const int* input_ids [[buffer(1)]],
       device const int* sampled [[buffer(2)]], device const QueryArgs* queries [[buffer(3)]],
       device const VerifyArgs* verifies [[buffer(4)]], device const int* stops [[buffer(5)]],
       uint2 group [[threadgroup_position_in_grid]], uint lane [[thread_index_in_simdgroup]]) {
  if (lane != 0) return;
  device const VerifyArgs& check = verifies[group.y];
  device const int* proposals = input_ids + queries[check.query].first_row + 1;
  uint count = 0;
  bool agrees = true;
  while (agrees && count < check.width) {
    const int id = sampled[check.first_logit + count];
    agrees = id >= 0 && id == proposals[count];
    for (uint s = 0; s < check.n_stops; s++) agrees = agrees && id != stops[check.first_stop + s];
    if (agrees) count++;
  }
  accepted[group.y] = count;
}
