// What drafting does between passes: columns of a wider activation, the hidden of the token before,
// the tokens of a draft, and how many of them the target agrees with.
//
//   place_columns         out[r][first + i] = in[r][i]
//   place_columns_int16   the same into int16 rows (int16.h)
//   shift_rows            out[r] = in[r - 1]; a query's first row is the seed of its bank, the row
//                         before it in an earlier pass, and zeros at position 0
//   keep_seeds            the seed of a written bank = the last row of its state in `in`
//   keep_taped_seeds   the same of the last row that a taped query keeps
//   scatter_ids           out[places[i]] = ids[i]
//   verify                accepted[i] of VerifyArgs i (kernel_args.h)
//
// Grid (1, count): of rows, of writes, of drafts, of taped ones or of ids; one simdgroup each. Numbers of
// columns are multiples of 4, for int16 rows of 32; offsets of seeds multiples of 4.
#include <metal_stdlib>

#include "int16.h"
#include "kernel_args.h"
using namespace metal;

inline void copy_floats(device float* to, device const float* from, uint n, uint lane) {
  for (uint i = lane; i < n / 4; i += 32) ((device float4*)to)[i] = ((device const float4*)from)[i];
}

kernel void place_columns(device float* out [[buffer(0)]],       // (rows, stride)
                          device const float* in [[buffer(1)]],  // (rows, dim)
                          constant PlaceArgs& args [[buffer(2)]], constant Pass& pass [[buffer(3)]],
                          uint2 group [[threadgroup_position_in_grid]],
                          uint lane [[thread_index_in_simdgroup]]) {
  copy_floats(out + group.y * args.stride + args.first, in + group.y * args.dim, args.dim, lane);
}

kernel void place_columns_int16(device uchar* out [[buffer(0)]],  // (rows) int16 rows of stride
                                device const float* in [[buffer(1)]],  // (rows, dim)
                                constant PlaceArgs& args [[buffer(2)]],
                                constant Pass& pass [[buffer(3)]],
                                uint2 group [[threadgroup_position_in_grid]],
                                uint lane [[thread_index_in_simdgroup]]) {
  const uint width = args.dim / 4;
  device const float4* x = (device const float4*)in + group.y * width;
  device uchar* row = out + group.y * int16_row_bytes(args.stride);
  for (uint start = 0; start < width; start += 32) {
    const uint i = start + lane;
    // Lanes past the columns take part, and store nothing.
    float4 values = float4(0.0f);
    if (i < width) values = x[i];
    int16_quantise(row, args.stride, i < width ? args.first + 4 * i : args.stride, values, lane);
  }
}

inline ulong seed_at(uint bank, constant SeedArgs& args) {
  return bank * args.bank_floats + args.seed_offset;
}

kernel void shift_rows(device float* out [[buffer(0)]],          // (rows, dim)
                       device const float* in [[buffer(1)]],     // (rows, dim)
                       device const float* banks [[buffer(2)]],  // (banks, bank_floats)
                       device const QueryArgs* queries [[buffer(3)]],
                       device const uint* row_query [[buffer(4)]],  // (rows)
                       constant SeedArgs& args [[buffer(5)]], constant Pass& pass [[buffer(6)]],
                       uint2 group [[threadgroup_position_in_grid]],
                       uint lane [[thread_index_in_simdgroup]]) {
  device const QueryArgs& query = queries[row_query[group.y]];
  device float* to = out + group.y * args.dim;
  if (group.y != query.first_row) {
    copy_floats(to, in + (group.y - 1) * args.dim, args.dim, lane);
  } else if (query.kv_valid > 0) {
    copy_floats(to, banks + seed_at(query.bank, args), args.dim, lane);
  } else {
    for (uint i = lane; i < args.dim / 4; i += 32) ((device float4*)to)[i] = float4(0.0f);
  }
}

kernel void keep_seeds(device float* banks [[buffer(0)]],     // (banks, bank_floats)
                       device const float* in [[buffer(1)]],  // (rows, dim)
                       device const QueryArgs* queries [[buffer(2)]],
                       device const StateWriteArgs* writes [[buffer(3)]],  // (n_writes)
                       constant SeedArgs& args [[buffer(4)]], constant Pass& pass [[buffer(5)]],
                       uint2 group [[threadgroup_position_in_grid]],
                       uint lane [[thread_index_in_simdgroup]]) {
  device const StateWriteArgs& write = writes[group.y];
  const uint row = queries[write.query].first_row + write.rows - 1;
  copy_floats(banks + seed_at(write.bank, args), in + row * args.dim, args.dim, lane);
}

kernel void keep_taped_seeds(device float* banks [[buffer(0)]],     // (banks, bank_floats)
                             device const float* in [[buffer(1)]],  // (rows, dim)
                             device const QueryArgs* queries [[buffer(2)]],
                             device const VerifyArgs* verifies [[buffer(3)]],  // (n_taped)
                             device const uint* accepted [[buffer(4)]],        // (n_taped)
                             constant SeedArgs& args [[buffer(5)]],
                             constant Pass& pass [[buffer(6)]],
                             uint2 group [[threadgroup_position_in_grid]],
                             uint lane [[thread_index_in_simdgroup]]) {
  device const VerifyArgs& check = verifies[group.y];
  const uint row = queries[check.query].first_row + accepted[group.y];
  copy_floats(banks + seed_at(check.bank, args), in + row * args.dim, args.dim, lane);
}

kernel void scatter_ids(device int* out [[buffer(0)]], device const int* ids [[buffer(1)]],
                        device const uint* places [[buffer(2)]],
                        uint2 group [[threadgroup_position_in_grid]],
                        uint lane [[thread_index_in_simdgroup]]) {
  if (lane == 0) out[places[group.y]] = ids[group.y];
}

kernel void verify(device uint* accepted [[buffer(0)]],        // (n_verified)
                   device const int* input_ids [[buffer(1)]],  // (rows)
                   device const int* sampled [[buffer(2)]],    // (n_logit_rows); -1: nothing
                   device const QueryArgs* queries [[buffer(3)]],
                   device const VerifyArgs* verifies [[buffer(4)]],  // (n_verified)
                   device const int* stops [[buffer(5)]],
                   uint2 group [[threadgroup_position_in_grid]],
                   uint lane [[thread_index_in_simdgroup]]) {
  device const VerifyArgs& check = verifies[group.y];
  device const int* proposals = input_ids + queries[check.query].first_row + 1;
  uint first = check.width;  // proposal that is refused, of this lane's
  for (uint i = lane; i < first; i += 32) {
    const int id = sampled[check.first_logit + i];
    bool agrees = id >= 0 && id == proposals[i];
    for (uint s = 0; s < check.n_stops; s++) agrees = agrees && id != stops[check.first_stop + s];
    if (!agrees) first = i;
  }
  first = simd_min(first);
  if (lane == 0) accepted[group.y] = first;
}
