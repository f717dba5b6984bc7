// Where the Gated DeltaNet twins find things. The kernels are described in metal/gdn.metal.
#pragma once
#include "kernel_args.h"
#include "twin.h"

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

// The arguments of gdn_recurrent and gdn_chunk.
struct DeltaRule {
  float* out;  // (rows, Hv * Dv)
  float* banks;
  const float* act;    // (rows, C)
  const float* gates;  // (rows, Hv): decay, beta
  const float* banks_in;
  const QueryArgs* queries;
  const StateWriteArgs* writes;
  const GdnArgs& args;

  explicit DeltaRule(const Dispatch& dispatch)
      : out(dispatch.buffer<float>(0)), banks(dispatch.buffer<float>(1)),
        act(dispatch.buffer<const float>(2)), gates(dispatch.buffer<const float>(3)),
        banks_in(dispatch.buffer<const float>(4)), queries(dispatch.buffer<const QueryArgs>(5)),
        writes(dispatch.buffer<const StateWriteArgs>(6)), args(dispatch.args<GdnArgs>(7)) {}

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
