// Embedding, norms and the MLP's gate: row by row.
#include "hash.h"

kernel void embed_f32(device uint* out [[buffer(0)]], device const int* ids [[buffer(1)]],
                      device const uint* table [[buffer(2)]],
                      constant EmbedArgs& args [[buffer(3)]], constant Pass& pass [[buffer(4)]],
                      uint2 group [[threadgroup_position_in_grid]],
                      uint lane [[thread_index_in_simdgroup]]) {
  device const uint* from = table + uint(ids[group.y]) * args.dim;
  for (uint i = lane; i < args.dim; i += 32) out[group.y * args.dim + i] = mix(from[i], i);
}

kernel void rms_norm(device uint* out [[buffer(0)]], device const uint* in [[buffer(1)]],
                     device const float* weight [[buffer(2)]], device uint* spoilt [[buffer(3)]],
                     constant NormArgs& args [[buffer(4)]], constant Pass& pass [[buffer(5)]],
                     uint2 group [[threadgroup_position_in_grid]],
                     uint lane [[thread_index_in_simdgroup]]) {
  const uint start = group.y * args.dim;
  for (uint i = lane; i < args.dim; i += 32) out[start + i] = mix(in[start + i], i);
}

kernel void rms_norm_int16(device uint* out [[buffer(0)]], device uint* out16 [[buffer(1)]],
                           device const uint* in [[buffer(2)]],
                           device const float* weight [[buffer(3)]],
                           device uint* spoilt [[buffer(4)]], constant NormArgs& args [[buffer(5)]],
                           constant Pass& pass [[buffer(6)]],
                           uint2 group [[threadgroup_position_in_grid]],
                           uint lane [[thread_index_in_simdgroup]]) {
  const uint start = group.y * args.dim;
  device uint* row = out16 + group.y * int16_words(args.dim);
  for (uint qblock = lane; qblock < args.dim / 32; qblock += 32) {
    uint x[32];
    for (uint j = 0; j < 32; j++) {
      const uint i = 32 * qblock + j;
      x[j] = mix(in[start + i], i);
      out[start + i] = x[j];
    }
    store_qblock(row, args.dim, qblock, x);
  }
}

kernel void gather_rows(device uint* out [[buffer(0)]], device const uint* in [[buffer(1)]],
                        device const uint* logit_rows [[buffer(2)]],
                        constant RowsArgs& args [[buffer(3)]], constant Pass& pass [[buffer(4)]],
                        uint2 group [[threadgroup_position_in_grid]],
                        uint lane [[thread_index_in_simdgroup]]) {
  for (uint i = lane; i < args.dim; i += 32)
    out[group.y * args.dim + i] = in[logit_rows[group.y] * args.dim + i];
}

kernel void swiglu(device uint* out [[buffer(0)]], device const uint* gate [[buffer(1)]],
                   device const uint* up [[buffer(2)]], constant RowsArgs& args [[buffer(3)]],
                   constant Pass& pass [[buffer(4)]], uint2 group [[threadgroup_position_in_grid]],
                   uint lane [[thread_index_in_simdgroup]]) {
  const uint start = group.y * args.dim;
  for (uint i = lane; i < args.dim; i += 32) out[start + i] = mix(gate[start + i], up[start + i]);
}
