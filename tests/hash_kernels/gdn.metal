// The convolution state keeps the last three raw rows; the state of a head is a linear recurrence
// with odd factors, so that no bit of what it was is ever lost.
#include "hash.h"

inline ulong bank_start(uint bank, constant GdnArgs& args) {
  return ulong(bank) * args.bank_floats;
}

// The query's row `index`; negative: what the bank remembers.
inline uint raw_row(device const uint* qkv, device const uint* banks, device const QueryArgs& query,
                    constant GdnArgs& args, int index, uint channels, uint channel) {
  if (index >= 0) return qkv[(query.first_row + uint(index)) * channels + channel];
  if (query.kv_valid == 0) return 0;
  const ulong state = bank_start(query.bank, args) + args.conv_offset;
  return banks[state + uint(index + 3) * channels + channel];
}

kernel void
gdn_conv(device uint* act [[buffer(0)]], device const uint* qkv [[buffer(1)]],
         device const float* weight [[buffer(2)]], device const uint* banks [[buffer(3)]],
         device const QueryArgs* queries [[buffer(4)]], device const uint* row_query [[buffer(5)]],
         constant GdnArgs& args [[buffer(6)]], constant Pass& pass [[buffer(7)]],
         uint2 group [[threadgroup_position_in_grid]], uint lane [[thread_index_in_simdgroup]]) {
  const uint channels = (2 * args.n_k_heads + args.n_v_heads) * args.head_dim;
  device const QueryArgs& query = queries[row_query[group.y]];
  const int index = int(group.y - query.first_row);
  for (uint d = lane; d < args.head_dim; d += 32) {
    const uint channel = group.x * args.head_dim + d;
    uint seen = channel;
    for (int tap = 3; tap >= 0; tap--)
      seen = mix(seen, raw_row(qkv, banks, query, args, index - tap, channels, channel));
    act[group.y * channels + channel] = seen;
  }
}

kernel void gdn_conv_state(device uint* banks [[buffer(0)]], device const uint* qkv [[buffer(1)]],
                           device const QueryArgs* queries [[buffer(2)]],
                           device const StateWriteArgs* writes [[buffer(3)]],
                           constant GdnArgs& args [[buffer(4)]], constant Pass& pass [[buffer(5)]],
                           uint2 group [[threadgroup_position_in_grid]],
                           uint lane [[thread_index_in_simdgroup]]) {
  const uint channels = (2 * args.n_k_heads + args.n_v_heads) * args.head_dim;
  device const StateWriteArgs& write = writes[group.y];
  device const QueryArgs& query = queries[write.query];
  const ulong state = bank_start(write.bank, args) + args.conv_offset;
  for (uint d = lane; d < args.head_dim; d += 32) {
    const uint channel = group.x * args.head_dim + d;
    for (int row = 0; row < 3; row++) {
      banks[state + uint(row) * channels + channel] =
          raw_row(qkv, banks, query, args, int(write.rows) - 3 + row, channels, channel);
    }
  }
}

kernel void gdn_gates(device uint2* gates [[buffer(0)]], device const uint* a [[buffer(1)]],
                      device const uint* b [[buffer(2)]], device const float* rate [[buffer(3)]],
                      device const float* dt_bias [[buffer(4)]],
                      constant GdnArgs& args [[buffer(5)]], constant Pass& pass [[buffer(6)]],
                      uint2 group [[threadgroup_position_in_grid]],
                      uint lane [[thread_index_in_simdgroup]]) {
  for (uint head = lane; head < args.n_v_heads; head += 32) {
    const uint i = group.y * args.n_v_heads + head;
    gates[i] = uint2(mix(a[i], head), mix(b[i], head));
  }
}

// The value row `value` of one head.
inline void recur(device uint* out, device uint* banks, device const uint* act,
                  device const uint2* gates, device const uint* banks_in,
                  device const QueryArgs& query, device const StateWriteArgs* writes,
                  constant GdnArgs& args, uint v_head, uint value) {
  const uint dim = args.head_dim;
  const uint k_head =
      args.k_head_tiled != 0 ? v_head % args.n_k_heads : v_head / (args.n_v_heads / args.n_k_heads);
  const uint channels = (2 * args.n_k_heads + args.n_v_heads) * dim;
  const ulong place = args.state_offset + ulong(v_head * dim + value) * dim;
  device const uint* from = banks_in + bank_start(query.bank, args) + place;
  uint t = 0;
  for (uint w = 0; w < query.n_writes; w++) {
    device const StateWriteArgs& write = writes[query.first_write + w];
    device uint* to = banks + bank_start(write.bank, args) + place;
    for (uint k = 0; k < dim; k++) to[k] = w == 0 && query.kv_valid == 0 ? 0 : from[k];
    for (; t < write.rows; t++) {
      const uint row = query.first_row + t;
      device const uint* heads = act + row * channels;
      device const uint* q = heads + k_head * dim;
      device const uint* key = heads + (args.n_k_heads + k_head) * dim;
      const uint v = heads[(2 * args.n_k_heads + v_head) * dim + value];
      const uint2 gate = gates[row * args.n_v_heads + v_head];
      uint sum = 0;
      for (uint k = 0; k < dim; k++) {
        to[k] = to[k] * odd(gate.x) + key[k] * odd(v) + gate.y;
        sum += to[k] * odd(q[k]);
      }
      out[(row * args.n_v_heads + v_head) * dim + value] = sum;
    }
    from = to;
  }
}

// Long queries are gdn_chunk's, the others gdn_recurrent's. Any number of values a group, one a lane.
template <bool kChunk>
kernel void
gdn_state(device uint* out [[buffer(0)]], device uint* banks [[buffer(1)]],
          device const uint* act [[buffer(2)]], device const uint2* gates [[buffer(3)]],
          device const uint* banks_in [[buffer(4)]], device const QueryArgs* queries [[buffer(5)]],
          device const StateWriteArgs* writes [[buffer(6)]], constant GdnArgs& args [[buffer(7)]],
          constant Pass& pass [[buffer(8)]], uint2 group [[threadgroup_position_in_grid]],
          uint2 groups [[threadgroups_per_grid]], uint lane [[thread_index_in_simdgroup]]) {
  device const QueryArgs& query = queries[group.y];
  if (kChunk != (query.count >= args.chunk_rows)) return;
  const uint values = args.n_v_heads * args.head_dim / groups.x;
  if (lane >= values) return;
  const uint value = group.x * values + lane;
  recur(out, banks, act, gates, banks_in, query, writes, args, value / args.head_dim,
        value % args.head_dim);
}

template [[host_name("gdn_recurrent")]] [[kernel]] decltype(gdn_state<false>) gdn_state<false>;
template [[host_name("gdn_chunk")]] [[kernel]] decltype(gdn_state<true>) gdn_state<true>;

kernel void gdn_norm(device uint* out [[buffer(0)]], device const uint* o [[buffer(1)]],
                     device const uint* z [[buffer(2)]], device const float* weight [[buffer(3)]],
                     constant GdnArgs& args [[buffer(4)]], constant Pass& pass [[buffer(5)]],
                     uint2 group [[threadgroup_position_in_grid]],
                     uint lane [[thread_index_in_simdgroup]]) {
  const uint start = (group.y * args.n_v_heads + group.x) * args.head_dim;
  for (uint d = lane; d < args.head_dim; d += 32) out[start + d] = mix(o[start + d], z[start + d]);
}

kernel void gdn_norm_int16(device uint* out16 [[buffer(0)]], device const uint* o [[buffer(1)]],
                           device const uint* z [[buffer(2)]],
                           device const float* weight [[buffer(3)]],
                           constant GdnArgs& args [[buffer(4)]], constant Pass& pass [[buffer(5)]],
                           uint2 group [[threadgroup_position_in_grid]],
                           uint lane [[thread_index_in_simdgroup]]) {
  const uint k = args.n_v_heads * args.head_dim;
  const uint start = group.y * k + group.x * args.head_dim;
  for (uint qblock = lane; qblock < args.head_dim / 32; qblock += 32) {
    uint x[32];
    for (uint j = 0; j < 32; j++) {
      const uint place = start + 32 * qblock + j;
      x[j] = mix(o[place], z[place]);
    }
    store_qblock(out16 + group.y * int16_words(k), k, group.x * args.head_dim / 32 + qblock, x);
  }
}
