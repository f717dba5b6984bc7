// The states of taped queries after the rows that were accepted, made from the tape: those that
// gdn_recurrent and gdn_conv_state would have kept after as many rows, bit for bit.
#include <metal_stdlib>

#include "gdn.h"
using namespace metal;

// Eight value rows of one head, four lanes a row, as in gdn_recurrent. `place`: of the value row in a
// bank; `rows`: the query's first tape row.
template <uint kQuads>
inline void replay(device float* banks, device const float* rows, device const QueryArgs& query,
                   uint bank, uint n_rows, constant GdnArgs& args, ulong place, uint v_head,
                   uint value, uint part) {
  float4 state[kQuads];
  for (uint i = 0; i < kQuads; i++) state[i] = float4(0.0f);
  if (query.kv_valid != 0) {
    device const float4* from =
        (device const float4*)(banks + bank_start(query.bank, args) + place) + part;
    for (uint i = 0; i < kQuads; i++) state[i] = from[i * 4];
  }
  const uint k_place = tape_k(key_head(v_head, args) * args.head_dim, args);
  for (uint t = 0; t < n_rows; t++) {
    device const float* row = rows + t * args.tape_row_floats;
    device const float4* k = (device const float4*)(row + k_place) + part;
    const float delta = row[tape_delta(v_head * args.head_dim + value, args)];
    const float decay = row[tape_decay(v_head, args)];
    for (uint i = 0; i < kQuads; i++) state[i] = after_row(state[i], decay, k[i * 4], delta);
  }
  device float4* to = (device float4*)(banks + bank_start(bank, args) + place) + part;
  for (uint i = 0; i < kQuads; i++) to[i * 4] = state[i];
}

// Grid (n_layers * (Hv * Dv / 8 + C / head_dim), n_taped): of each layer the states, then the conv
// states. No bank that a query reads is written.
kernel void gdn_replay(device float* banks [[buffer(0)]],
                       device const float* tape [[buffer(1)]],  // (n_layers, tape rows)
                       device const QueryArgs* queries [[buffer(2)]],
                       device const VerifyArgs* verifies [[buffer(3)]],  // (n_taped)
                       device const uint* accepted [[buffer(4)]],        // (n_taped)
                       constant GdnReplayArgs& all [[buffer(5)]], constant Pass& pass [[buffer(6)]],
                       uint2 group [[threadgroup_position_in_grid]],
                       uint lane [[thread_index_in_simdgroup]]) {
  constant GdnArgs& args = all.layer;
  const uint heads = 2 * args.n_k_heads + args.n_v_heads;
  const uint groups_per_head = args.head_dim / 8;
  const uint state_groups = args.n_v_heads * groups_per_head;
  const uint layer = group.x / (state_groups + heads);
  const uint index = group.x % (state_groups + heads);
  device const VerifyArgs& verify = verifies[group.y];
  device const QueryArgs& query = queries[verify.query];
  const uint n_rows = 1 + accepted[group.y];
  device const float* rows =
      tape + layer * all.tape_stride + query.first_tape * args.tape_row_floats;
  if (index < state_groups) {
    const uint v_head = index / groups_per_head;
    const uint value = index % groups_per_head * 8 + lane / 4;
    const ulong place = args.state_offset + layer * all.state_stride +
                        ulong(v_head * args.head_dim + value) * args.head_dim;
    if (args.head_dim == 128) {
      replay<8>(banks, rows, query, verify.bank, n_rows, args, place, v_head, value, lane % 4);
    } else {
      replay<4>(banks, rows, query, verify.bank, n_rows, args, place, v_head, value, lane % 4);
    }
    return;
  }
  if (lane * 4 >= args.head_dim) return;
  const uint channel = (index - state_groups) * args.head_dim + lane * 4;
  device float* layer_banks = banks + layer * all.conv_stride;
  device float* to = layer_banks + bank_start(verify.bank, args) + args.conv_offset;
  for (int row = 0; row < 3; row++) {
    *(device float4*)(to + uint(row) * heads * args.head_dim + channel) = raw_row(
        rows, args.tape_row_floats, layer_banks, query, args, int(n_rows) - 3 + row, channel);
  }
}
