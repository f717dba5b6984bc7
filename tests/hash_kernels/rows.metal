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
                     device const float* weight [[buffer(2)]],
                     constant NormArgs& args [[buffer(3)]], constant Pass& pass [[buffer(4)]],
                     uint2 group [[threadgroup_position_in_grid]],
                     uint lane [[thread_index_in_simdgroup]]) {
  const uint start = group.y * args.dim;
  for (uint i = lane; i < args.dim; i += 32) out[start + i] = mix(in[start + i], i);
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
