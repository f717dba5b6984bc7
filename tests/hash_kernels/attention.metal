// K and V keep 16 bits of hashes of their row; a row sums all positions that it sees, each by its own
// factor.
#include "hash.h"

inline ulong plane_offset(uint position, uint kv_head, device const QueryArgs& query,
                          constant AttentionArgs& args) {
  return (ulong(query.slot) * args.slot_tokens + position) * args.token_halves +
         kv_head * args.head_dim;
}

// Positions begin .. end - 1.
struct Keys {
  uint begin;
  uint end;
};

// What a row sees.
inline Keys seen_keys(uint row, device const QueryArgs& query, constant AttentionArgs& args) {
  const uint position = row_position(row, query);
  Keys keys = {args.first_key, query.kv_valid + query.count};
  if (args.causal != 0) keys.end = position + 1;
  if (args.window != 0) {
    if (position + 1 > args.window) keys.begin = max(keys.begin, position + 1 - args.window);
    if (keys.end - position > args.window) keys.end = position + args.window;
  }
  if (keys.begin >= keys.end) return {0, 0};
  return keys;
}

kernel void attention_prepare(
    device uint* q [[buffer(0)]], device ushort* k_plane [[buffer(1)]],
    device ushort* v_plane [[buffer(2)]], device const uint* qg [[buffer(3)]],
    device const uint* k [[buffer(4)]], device const uint* v [[buffer(5)]],
    device const float* q_norm [[buffer(6)]], device const float* k_norm [[buffer(7)]],
    device const float2* rope [[buffer(8)]], device const QueryArgs* queries [[buffer(9)]],
    device const uint* row_query [[buffer(10)]], device uint* spoilt [[buffer(11)]],
    constant AttentionArgs& args [[buffer(12)]], constant Pass& pass [[buffer(13)]],
    uint2 group [[threadgroup_position_in_grid]], uint lane [[thread_index_in_simdgroup]]) {
  const uint row = group.y;
  const uint dim = args.head_dim;
  device const QueryArgs& query = queries[row_query[row]];
  const uint position = row_position(row, query);
  if (group.x < args.n_heads) {
    const uint head = row * args.n_heads + group.x;
    device const uint* from = qg + head * (args.gated != 0 ? 2 : 1) * dim;
    for (uint d = lane; d < dim; d += 32) q[head * dim + d] = mix(from[d], position);
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
    const Keys seen = seen_keys(row, query, args);
    const uint begin = max(seen.begin, first);
    const uint end = min(seen.end, first + split_keys);
    if (begin >= end) continue;
    for (uint d = lane; d < args.head_dim; d += 32) {
      uint sum = 0;
      for (uint key = begin; key < end; key++) {
        const ulong place = plane_offset(key, kv_head, query, args) + d;
        sum += (uint(k_plane[place]) << 16 | uint(v_plane[place])) * odd(mix(key, d));
      }
      for (uint g = 0; g < n_heads; g++) {
        const uint head = row * args.n_heads + kv_head * n_heads + g;
        const ulong place = ulong(head) * pass.n_splits + split;
        partial[place * args.head_dim + d] = sum * odd(q[head * args.head_dim + d]);
        if (d == 0) stats[place] = uint2(end - begin, 0);
      }
    }
  }
}

#define MTLQWEN_INSTANCE(NAME, NUMBER)                                                             \
  template [[host_name(NAME)]] [[kernel]] decltype(attention_split<NUMBER>) attention_split<NUMBER>;
MTLQWEN_INSTANCE("attention_split", 1)
MTLQWEN_INSTANCE("attention_split_tile_16", 16)

// Dim d of a head, from all its splits.
inline uint merge_dim(device const uint* partial, device const uint2* stats, device const uint* qg,
                      uint row, uint head, uint d, device const QueryArgs& query,
                      constant AttentionArgs& args, constant Pass& pass) {
  const Keys seen = seen_keys(row, query, args);
  const uint split_keys = pass.blocks_per_split * 128;
  const ulong place = ulong(head) * pass.n_splits;
  uint sum = 0;
  for (uint first = seen.begin / split_keys * split_keys; first < seen.end; first += split_keys) {
    const ulong split = place + first / split_keys;
    sum += partial[split * args.head_dim + d] + stats[split].x;
  }
  return args.gated != 0 ? mix(sum, qg[(head * 2 + 1) * args.head_dim + d]) : sum;
}

kernel void attention_merge(
    device uint* out [[buffer(0)]], device const uint* partial [[buffer(1)]],
    device const uint2* stats [[buffer(2)]], device const uint* qg [[buffer(3)]],
    device const QueryArgs* queries [[buffer(4)]], device const uint* row_query [[buffer(5)]],
    constant AttentionArgs& args [[buffer(6)]], constant Pass& pass [[buffer(7)]],
    uint2 group [[threadgroup_position_in_grid]], uint lane [[thread_index_in_simdgroup]]) {
  const uint row = group.y;
  const uint head = row * args.n_heads + group.x;
  for (uint d = lane; d < args.head_dim; d += 32) {
    out[head * args.head_dim + d] =
        merge_dim(partial, stats, qg, row, head, d, queries[row_query[row]], args, pass);
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
  const uint k = args.n_heads * dim;
  for (uint qblock = lane; qblock < dim / 32; qblock += 32) {
    uint x[32];
    for (uint j = 0; j < 32; j++) {
      x[j] = merge_dim(partial, stats, qg, row, head, 32 * qblock + j, queries[row_query[row]],
                       args, pass);
    }
    store_qblock(out16 + row * int16_words(k), k, group.x * dim / 32 + qblock, x);
  }
}
