// The convolution state keeps the last three raw rows; the state of a head is a linear recurrence
// with odd factors, so that no bit of what it was is ever lost.
#include "hash.h"

inline ulong bank_start(uint bank, constant GdnArgs& args) {
  return ulong(bank) * args.bank_floats;
}

inline uint channels_of(constant GdnArgs& args) {
  return (2 * args.n_k_heads + args.n_v_heads) * args.head_dim;
}

inline uint key_head(uint v_head, constant GdnArgs& args) {
  return args.k_head_tiled != 0 ? v_head % args.n_k_heads
                                : v_head / (args.n_v_heads / args.n_k_heads);
}

// The query's row t of the tape, and where that has k heads, deltas and decays.
template <typename Word>
inline device Word* tape_row(device Word* tape, device const QueryArgs& query,
                             constant GdnArgs& args, uint t) {
  return tape + (query.first_tape + t) * args.tape_row_floats;
}
inline uint tape_k(constant GdnArgs& args) { return channels_of(args); }
inline uint tape_delta(constant GdnArgs& args) {
  return tape_k(args) + args.n_k_heads * args.head_dim;
}
inline uint tape_decay(constant GdnArgs& args) {
  return tape_delta(args) + args.n_v_heads * args.head_dim;
}

// The query's row `index`, `stride` words from the one before it; negative: what the bank remembers.
inline uint raw_row(device const uint* rows, ulong stride, device const uint* banks,
                    device const QueryArgs& query, constant GdnArgs& args, int index,
                    uint channel) {
  if (index >= 0) return rows[uint(index) * stride + channel];
  if (query.kv_valid == 0) return 0;
  const ulong state = bank_start(query.bank, args) + args.conv_offset;
  return banks[state + uint(index + 3) * channels_of(args) + channel];
}

kernel void gdn_conv(device uint* act [[buffer(0)]], device uint* tape [[buffer(1)]],
                     device const uint* qkv [[buffer(2)]], device const float* weight [[buffer(3)]],
                     device const uint* banks [[buffer(4)]],
                     device const QueryArgs* queries [[buffer(5)]],
                     device const uint* row_query [[buffer(6)]],
                     constant GdnArgs& args [[buffer(7)]], constant Pass& pass [[buffer(8)]],
                     uint2 group [[threadgroup_position_in_grid]],
                     uint lane [[thread_index_in_simdgroup]]) {
  const uint channels = channels_of(args);
  const uint keys = args.n_k_heads * args.head_dim;
  device const QueryArgs& query = queries[row_query[group.y]];
  device const uint* rows = qkv + query.first_row * channels;
  const int index = int(group.y - query.first_row);
  for (uint d = lane; d < args.head_dim; d += 32) {
    const uint channel = group.x * args.head_dim + d;
    uint seen = channel;
    for (int tap = 3; tap >= 0; tap--)
      seen = mix(seen, raw_row(rows, channels, banks, query, args, index - tap, channel));
    act[group.y * channels + channel] = seen;
    if (query.n_writes != 0) continue;
    device uint* kept = tape_row(tape, query, args, uint(index));
    kept[channel] = rows[uint(index) * channels + channel];
    if (channel >= keys && channel < 2 * keys) kept[tape_k(args) + channel - keys] = seen;
  }
}

kernel void gdn_conv_state(device uint* banks [[buffer(0)]], device const uint* qkv [[buffer(1)]],
                           device const QueryArgs* queries [[buffer(2)]],
                           device const StateWriteArgs* writes [[buffer(3)]],
                           constant GdnArgs& args [[buffer(4)]], constant Pass& pass [[buffer(5)]],
                           uint2 group [[threadgroup_position_in_grid]],
                           uint lane [[thread_index_in_simdgroup]]) {
  const uint channels = channels_of(args);
  device const StateWriteArgs& write = writes[group.y];
  device const QueryArgs& query = queries[write.query];
  device const uint* rows = qkv + query.first_row * channels;
  device uint* state = banks + bank_start(write.bank, args) + args.conv_offset;
  for (uint d = lane; d < args.head_dim; d += 32) {
    const uint channel = group.x * args.head_dim + d;
    for (int row = 0; row < 3; row++) {
      state[uint(row) * channels + channel] =
          raw_row(rows, channels, banks, query, args, int(write.rows) - 3 + row, channel);
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

// The state of one value row.
struct State {
  uint words[128];
};

inline void load_state(thread State& state, device const uint* from, device const QueryArgs& query,
                       constant GdnArgs& args) {
  for (uint k = 0; k < args.head_dim; k++) state.words[k] = query.kv_valid == 0 ? 0 : from[k];
}

inline void add_row(thread State& state, device const uint* key, uint decay, uint delta,
                    constant GdnArgs& args) {
  for (uint k = 0; k < args.head_dim; k++)
    state.words[k] = state.words[k] * odd(decay) + key[k] * odd(delta);
}

inline void store_state(device uint* to, thread const State& state, constant GdnArgs& args) {
  for (uint k = 0; k < args.head_dim; k++) to[k] = state.words[k];
}

// The value row number `value` of all heads. Long queries are gdn_chunk's, which has no tape.
template <bool kChunk>
inline void recur(device uint* out, device uint* banks, device uint* tape, device const uint* act,
                  device const uint2* gates, device const uint* banks_in,
                  device const QueryArgs& query, device const StateWriteArgs* writes,
                  constant GdnArgs& args, uint value) {
  const uint dim = args.head_dim;
  const uint v_head = value / dim;
  const uint k_head = key_head(v_head, args);
  const ulong place = args.state_offset + ulong(value) * dim;
  State state;
  load_state(state, banks_in + bank_start(query.bank, args) + place, query, args);
  uint write = query.first_write;
  for (uint t = 0; t < query.count; t++) {
    const uint row = query.first_row + t;
    device const uint* heads = act + row * channels_of(args);
    device const uint* q = heads + k_head * dim;
    const uint2 gate = gates[row * args.n_v_heads + v_head];
    const uint delta = mix(heads[2 * args.n_k_heads * dim + value], gate.y);
    add_row(state, q + args.n_k_heads * dim, gate.x, delta, args);
    uint sum = 0;
    for (uint k = 0; k < dim; k++) sum += state.words[k] * odd(q[k]);
    out[row * args.n_v_heads * dim + value] = sum;
    if (!kChunk && query.n_writes == 0) {
      device uint* kept = tape_row(tape, query, args, t);
      kept[tape_delta(args) + value] = delta;
      if (value % dim == 0) kept[tape_decay(args) + v_head] = gate.x;
    } else if (t + 1 == writes[write].rows) {
      store_state(banks + bank_start(writes[write++].bank, args) + place, state, args);
    }
  }
}

// The two kernels have any number of values a group, one a lane.
kernel void gdn_recurrent(device uint* out [[buffer(0)]], device uint* banks [[buffer(1)]],
                          device uint* tape [[buffer(2)]], device const uint* act [[buffer(3)]],
                          device const uint2* gates [[buffer(4)]],
                          device const uint* banks_in [[buffer(5)]],
                          device const QueryArgs* queries [[buffer(6)]],
                          device const StateWriteArgs* writes [[buffer(7)]],
                          constant GdnArgs& args [[buffer(8)]], constant Pass& pass [[buffer(9)]],
                          uint2 group [[threadgroup_position_in_grid]],
                          uint2 groups [[threadgroups_per_grid]],
                          uint lane [[thread_index_in_simdgroup]]) {
  device const QueryArgs& query = queries[group.y];
  const uint values = args.n_v_heads * args.head_dim / groups.x;
  if (query.count >= args.chunk_rows || lane >= values) return;
  recur<false>(out, banks, tape, act, gates, banks_in, query, writes, args,
               group.x * values + lane);
}

kernel void
gdn_chunk(device uint* out [[buffer(0)]], device uint* banks [[buffer(1)]],
          device const uint* act [[buffer(2)]], device const uint2* gates [[buffer(3)]],
          device const uint* banks_in [[buffer(4)]], device const QueryArgs* queries [[buffer(5)]],
          device const StateWriteArgs* writes [[buffer(6)]], constant GdnArgs& args [[buffer(7)]],
          constant Pass& pass [[buffer(8)]], uint2 group [[threadgroup_position_in_grid]],
          uint2 groups [[threadgroups_per_grid]], uint lane [[thread_index_in_simdgroup]]) {
  device const QueryArgs& query = queries[group.y];
  const uint values = args.n_v_heads * args.head_dim / groups.x;
  if (query.count < args.chunk_rows || lane >= values) return;
  recur<true>(out, banks, banks, act, gates, banks_in, query, writes, args,
              group.x * values + lane);
}

// Eight values a group, or a head's channels of the convolution state.
kernel void gdn_replay(device uint* banks [[buffer(0)]], device const uint* tape [[buffer(1)]],
                       device const QueryArgs* queries [[buffer(2)]],
                       device const VerifyArgs* verifies [[buffer(3)]],
                       device const uint* accepted [[buffer(4)]],
                       constant GdnReplayArgs& all [[buffer(5)]], constant Pass& pass [[buffer(6)]],
                       uint2 group [[threadgroup_position_in_grid]],
                       uint lane [[thread_index_in_simdgroup]]) {
  constant GdnArgs& args = all.layer;
  const uint dim = args.head_dim;
  const uint channels = channels_of(args);
  const uint state_groups = args.n_v_heads * dim / 8;
  const uint layer = group.x / (state_groups + channels / dim);
  const uint index = group.x % (state_groups + channels / dim);
  device const VerifyArgs& verify = verifies[group.y];
  device const QueryArgs& query = queries[verify.query];
  device const uint* rows = tape_row(tape + layer * all.tape_stride, query, args, 0);
  const uint n_rows = 1 + accepted[group.y];
  if (index >= state_groups) {
    device uint* conv = banks + layer * all.conv_stride;
    device uint* to = conv + bank_start(verify.bank, args) + args.conv_offset;
    for (uint d = lane; d < dim; d += 32) {
      const uint channel = (index - state_groups) * dim + d;
      for (int row = 0; row < 3; row++) {
        to[uint(row) * channels + channel] =
            raw_row(rows, args.tape_row_floats, conv, query, args, int(n_rows) - 3 + row, channel);
      }
    }
    return;
  }
  if (lane >= 8) return;
  const uint value = index * 8 + lane;
  const uint v_head = value / dim;
  const ulong place = args.state_offset + layer * all.state_stride + ulong(value) * dim;
  State state;
  load_state(state, banks + bank_start(query.bank, args) + place, query, args);
  for (uint t = 0; t < n_rows; t++) {
    device const uint* row = rows + t * args.tape_row_floats;
    add_row(state, row + tape_k(args) + key_head(v_head, args) * dim,
            row[tape_decay(args) + v_head], row[tape_delta(args) + value], args);
  }
  store_state(banks + bank_start(verify.bank, args) + place, state, args);
}

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
