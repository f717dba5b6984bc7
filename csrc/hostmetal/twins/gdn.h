// Where the Gated DeltaNet twins find things. The kernels are described in metal/gdn.metal.
#pragma once
#include "kernel_args.h"
#include "twin.h"
#include "wide.h"

namespace mtlqwen::twins {

// Floats before a bank.
inline uint64_t bank_start(uint32_t bank, const GdnArgs& args) {
  return uint64_t{bank} * args.bank_floats;
}

inline uint32_t key_head(uint32_t v_head, const GdnArgs& args) {
  return args.k_head_tiled != 0 ? v_head % args.n_k_heads
                                : v_head / (args.n_v_heads / args.n_k_heads);
}

// Of a row of qkv.
inline uint32_t channels_of(const GdnArgs& args) {
  return (2 * args.n_k_heads + args.n_v_heads) * args.head_dim;
}

// Whether the query is verified: its rows go to the tape.
inline bool is_taped(const QueryArgs& query) { return query.n_writes == 0; }

// Where a tape row holds the value `index` of k heads; of deltas; of decays. The channels come first.
inline uint32_t tape_k(uint32_t index, const GdnArgs& args) { return channels_of(args) + index; }
inline uint32_t tape_delta(uint32_t index, const GdnArgs& args) {
  return tape_k(args.n_k_heads * args.head_dim, args) + index;
}
inline uint32_t tape_decay(uint32_t index, const GdnArgs& args) {
  return tape_delta(args.n_v_heads * args.head_dim, args) + index;
}

constexpr uint32_t kMaxHeadDim = 128;
alignas(64) constexpr float kZeroHead[kMaxHeadDim] = {};

// The channels from `channel` on of the query's row `index` before the convolution. Negative: what
// the bank remembers (-1 the newest). `rows`: the query's first row, `stride` floats to the next.
inline const float* raw_row(const float* rows, uint64_t stride, const float* banks,
                            const QueryArgs& query, const GdnArgs& args, int32_t index,
                            uint32_t channel) {
  if (index >= 0) return rows + static_cast<uint32_t>(index) * stride + channel;
  if (query.kv_valid == 0) return kZeroHead;
  const float* state = banks + bank_start(query.bank, args) + args.conv_offset;
  return state + static_cast<uint32_t>(index + 3) * uint64_t{channels_of(args)} + channel;
}

// What a row of the state becomes by a row: S * decay + delta k^T, 16 dims of it.
MTLQWEN_INLINE Wide after_row(Wide state, Wide decay, Wide k, Wide delta) {
  return multiply_add(k, delta, state * decay);
}

// The arguments of gdn_chunk, and those of gdn_recurrent, which has the tape as one more.
struct DeltaRule {
  float* out;  // (rows, Hv * Dv)
  float* banks;
  const float* act;    // (rows, C)
  const float* gates;  // (rows, Hv): decay, beta
  const float* banks_in;
  const QueryArgs* queries;
  const StateWriteArgs* writes;
  const GdnArgs& args;

  DeltaRule(const Dispatch& dispatch, uint32_t first_in)
      : out(dispatch.buffer<float>(0)), banks(dispatch.buffer<float>(1)),
        act(dispatch.buffer<const float>(first_in)),
        gates(dispatch.buffer<const float>(first_in + 1)),
        banks_in(dispatch.buffer<const float>(first_in + 2)),
        queries(dispatch.buffer<const QueryArgs>(first_in + 3)),
        writes(dispatch.buffer<const StateWriteArgs>(first_in + 4)),
        args(dispatch.args<GdnArgs>(first_in + 5)) {}

  // The state of one value row before the pass, and where one that is kept goes.
  [[nodiscard]] const float* old_state(const QueryArgs& query, uint32_t v_head,
                                       uint32_t value) const {
    return banks_in + bank_start(query.bank, args) + place(v_head, value);
  }
  [[nodiscard]] float* new_state(const StateWriteArgs& write, uint32_t v_head,
                                 uint32_t value) const {
    return banks + bank_start(write.bank, args) + place(v_head, value);
  }

 private:
  [[nodiscard]] uint64_t place(uint32_t v_head, uint32_t value) const {
    return args.state_offset + (uint64_t{v_head} * args.head_dim + value) * args.head_dim;
  }
};

}  // namespace mtlqwen::twins
