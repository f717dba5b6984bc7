// K and V keep 16 bits of hashes of their row; a row sums all positions up to its own, each by its
// own factor.
#include "hash.h"

inline ulong plane_offset(uint position, uint kv_head, device const QueryArgs& query,
                          constant AttentionArgs& args) {
  return ((ulong(query.slot) * args.slot_tokens + position) * args.n_kv_heads + kv_head) *
         args.head_dim;
}

kernel void attention_prepare(
    device uint* q [[buffer(0)]], device ushort* k_plane [[buffer(1)]],
    device ushort* v_plane [[buffer(2)]], device const uint* qg [[buffer(3)]],
    device const uint* k [[buffer(4)]], device const uint* v [[buffer(5)]],
    device const float* q_norm [[buffer(6)]], device const float* k_norm [[buffer(7)]],
    device const float2* rope [[buffer(8)]], device const QueryArgs* queries [[buffer(9)]],
    device const uint* row_query [[buffer(10)]], constant AttentionArgs& args [[buffer(11)]],
    constant Pass& pass [[buffer(12)]], uint2 group [[threadgroup_position_in_grid]],
    uint lane [[thread_index_in_simdgroup]]) {
  const uint row = group.y;
  const uint dim = args.head_dim;
  device const QueryArgs& query = queries[row_query[row]];
  const uint position = row_position(row, query);
  if (group.x < args.n_heads) {
    const uint head = row * args.n_heads + group.x;
    for (uint d = lane; d < dim; d += 32) q[head * dim + d] = mix(qg[head * 2 * dim + d], position);
    return;
  }
  const uint kv_head = group.x - args.n_heads;
  const uint head = row * args.n_kv_heads + kv_head;
  const ulong place = plane_offset(position, kv_head, query, args);
  for (uint d = lane; d < dim; d += 32) {
    k_plane[place + d] = ushort(mix(k[head * dim + d], position) >> 16);
    v_plane[place + d] = ushort(mix(v[head * dim + d], position) >> 16);
  }
}

// Any number of rows a group.
template <uint kName>
kernel void attention_split(
    device uint* partial [[buffer(0)]], device uint2* stats [[buffer(1)]],
    device const uint* q [[buffer(2)]], device const ushort* k_plane [[buffer(3)]],
    device const ushort* v_plane [[buffer(4)]], device const QueryArgs* queries [[buffer(5)]],
    device const uint* row_query [[buffer(6)]], constant AttentionArgs& args [[buffer(7)]],
    constant Pass& pass [[buffer(8)]], uint2 group [[threadgroup_position_in_grid]],
    uint2 groups [[threadgroups_per_grid]], uint lane [[thread_index_in_simdgroup]]) {
  const uint kv_head = group.x % args.n_kv_heads;
  const uint split = group.x / args.n_kv_heads;
  const uint split_keys = pass.blocks_per_split * 128;
  const uint first = split * split_keys;
  const uint n_heads = args.n_heads / args.n_kv_heads;
  const uint rows = (pass.rows + groups.y - 1) / groups.y;
  const uint end_row = min(pass.rows, (group.y + 1) * rows);
  for (uint row = group.y * rows; row < end_row; row++) {
    device const QueryArgs& query = queries[row_query[row]];
    const uint length = row_position(row, query) + 1;
    if (first >= length) continue;
    const uint end = min(length, first + split_keys);
    for (uint d = lane; d < args.head_dim; d += 32) {
      uint sum = 0;
      for (uint key = first; key < end; key++) {
        const ulong place = plane_offset(key, kv_head, query, args) + d;
        sum += (uint(k_plane[place]) << 16 | uint(v_plane[place])) * odd(mix(key, d));
      }
      for (uint g = 0; g < n_heads; g++) {
        const uint head = row * args.n_heads + kv_head * n_heads + g;
        const ulong place = ulong(head) * pass.n_splits + split;
        partial[place * args.head_dim + d] = sum * odd(q[head * args.head_dim + d]);
        if (d == 0) stats[place] = uint2(end - first, 0);
      }
    }
  }
}

#define MTLQWEN_INSTANCE(NAME, NUMBER)                                                             \
  template [[host_name(NAME)]] [[kernel]] decltype(attention_split<NUMBER>) attention_split<NUMBER>;
MTLQWEN_INSTANCE("attention_split", 1)
MTLQWEN_INSTANCE("attention_split_tile_16", 16)

// Dim d of a head, from all its splits. Pointers stand at the head's first split and gate.
inline uint merge_dim(device const uint* partial, device const uint2* stats,
                      device const uint* gate, uint n_splits, uint dim, uint d) {
  uint sum = 0;
  for (uint split = 0; split < n_splits; split++) sum += partial[split * dim + d] + stats[split].x;
  return mix(sum, gate[d]);
}

kernel void attention_merge(
    device uint* out [[buffer(0)]], device const uint* partial [[buffer(1)]],
    device const uint2* stats [[buffer(2)]], device const uint* qg [[buffer(3)]],
    device const QueryArgs* queries [[buffer(4)]], device const uint* row_query [[buffer(5)]],
    constant AttentionArgs& args [[buffer(6)]], constant Pass& pass [[buffer(7)]],
    uint2 group [[threadgroup_position_in_grid]], uint lane [[thread_index_in_simdgroup]]) {
  const uint row = group.y;
  const uint dim = args.head_dim;
  const uint head = row * args.n_heads + group.x;
  const uint last = row_position(row, queries[row_query[row]]);
  const uint n_splits = last / (pass.blocks_per_split * 128) + 1;
  const ulong place = ulong(head) * pass.n_splits;
  for (uint d = lane; d < dim; d += 32) {
    out[head * dim + d] = merge_dim(partial + place * dim, stats + place, qg + (head * 2 + 1) * dim,
                                    n_splits, dim, d);
  }
}

kernel void attention_merge_int16(
    device uint* out16 [[buffer(0)]], device const uint* partial [[buffer(1)]],
    device const uint2* stats [[buffer(2)]], device const uint* qg [[buffer(3)]],
    device const QueryArgs* queries [[buffer(4)]], device const uint* row_query [[buffer(5)]],
    constant AttentionArgs& args [[buffer(6)]], constant Pass& pass [[buffer(7)]],
    uint2 group [[threadgroup_position_in_grid]], uint lane [[thread_index_in_simdgroup]]) {
  const uint row = group.y;
  const uint dim = args.head_dim;
  const uint head = row * args.n_heads + group.x;
  const uint last = row_position(row, queries[row_query[row]]);
  const uint n_splits = last / (pass.blocks_per_split * 128) + 1;
  const ulong place = ulong(head) * pass.n_splits;
  const uint k = args.n_heads * dim;
  for (uint qblock = lane; qblock < dim / 32; qblock += 32) {
    uint x[32];
    for (uint j = 0; j < 32; j++) {
      x[j] = merge_dim(partial + place * dim, stats + place, qg + (head * 2 + 1) * dim, n_splits,
                       dim, 32 * qblock + j);
    }
    store_qblock(out16 + row * int16_words(k), k, group.x * dim / 32 + qblock, x);
  }
}
