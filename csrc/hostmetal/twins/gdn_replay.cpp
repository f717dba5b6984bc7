// gdn_replay: a piece of the state stays in registers while all accepted rows are added to it, so that
// it is read once and written once, past the caches as gdn_recurrent writes it.
#include "gdn.h"
#include "twin.h"

namespace mtlqwen::twins {
namespace {

constexpr uint32_t kValues = 8;  // value rows of a threadgroup
constexpr uint64_t kLine = 64;   // bytes
#ifdef __AVX512F__
constexpr uint32_t kTogether = 8;  // vectors of one value row that fit into registers
#else
constexpr uint32_t kTogether = 4;
#endif

alignas(kLine) constexpr float kZeroState[kValues * kMaxHeadDim] = {};

// The query's tape rows, as the value rows of one threadgroup see them.
struct TapeRows {
  const float* k;      // of the first row
  const float* delta;  // of the first value
  const float* decay;
  uint64_t stride;
  uint32_t count;
};

template <uint32_t kDim>
MTLQWEN_INLINE void replay(float* to, const float* from, const TapeRows& rows) {
  const bool is_aligned = reinterpret_cast<uintptr_t>(to) % kLine == 0;
  constexpr uint32_t kPart = kTogether * kWide < kDim ? kTogether * kWide : kDim;
  for (uint32_t value = 0; value < kValues; value++) {
    for (uint32_t part = 0; part < kDim; part += kPart) {
      const uint32_t place = value * kDim + part;
      Wide state[kPart / kWide];
#pragma unroll
      for (uint32_t i = 0; i < kPart / kWide; i++) state[i] = load(from + place + i * kWide);
      for (uint32_t t = 0; t < rows.count; t++) {
        const float* k = rows.k + t * rows.stride + part;
        const Wide delta = rows.delta[t * rows.stride + value];
        const Wide decay = rows.decay[t * rows.stride];
#pragma unroll
        for (uint32_t i = 0; i < kPart / kWide; i++) {
          state[i] = after_row(state[i], decay, load(k + i * kWide), delta);
        }
      }
#pragma unroll
      for (uint32_t i = 0; i < kPart / kWide; i++) {
        if (is_aligned) {
          __builtin_nontemporal_store(state[i], reinterpret_cast<Wide*>(to + place + i * kWide));
        } else {
          store(to + place + i * kWide, state[i]);
        }
      }
    }
  }
}

// One verified query in one layer.
struct Verified {
  const GdnArgs& args;
  const QueryArgs& query;
  const float* tape;  // its first row
  uint32_t bank;
  uint32_t n_rows;
};

// `banks`: from where the layer's state is as far as that of the first layer is from all banks.
void replay_state(float* banks, const Verified& verified, uint32_t group) {
  const auto& [args, query, tape, bank, n_rows] = verified;
  const uint32_t value = group * kValues;  // among those of all heads
  const uint32_t v_head = value / args.head_dim;
  const uint64_t place = args.state_offset + uint64_t{value} * args.head_dim;
  float* to = banks + bank_start(bank, args) + place;
  const float* from = banks + bank_start(query.bank, args) + place;
  if (query.kv_valid == 0) from = kZeroState;
  const TapeRows rows{.k = tape + tape_k(key_head(v_head, args) * args.head_dim, args),
                      .delta = tape + tape_delta(value, args),
                      .decay = tape + tape_decay(v_head, args),
                      .stride = args.tape_row_floats,
                      .count = n_rows};
  if (args.head_dim == 128) {
    replay<128>(to, from, rows);
  } else {
    replay<64>(to, from, rows);
  }
}

// `banks`: the same of the conv state.
void replay_conv_state(float* banks, const Verified& verified, uint32_t head) {
  const auto& [args, query, tape, bank, n_rows] = verified;
  const uint32_t channel = head * args.head_dim;
  float* to = banks + bank_start(bank, args) + args.conv_offset + channel;
  for (uint32_t row = 0; row < 3; row++) {
    const int32_t index = static_cast<int32_t>(n_rows + row) - 3;
    __builtin_memcpy(to + row * uint64_t{channels_of(args)},
                     raw_row(tape, args.tape_row_floats, banks, query, args, index, channel),
                     args.head_dim * sizeof(float));
  }
}

}  // namespace
}  // namespace mtlqwen::twins

MTLQWEN_TWIN(gdn_replay) {
  using namespace mtlqwen;
  using namespace mtlqwen::twins;
  auto* banks = dispatch.buffer<float>(0);
  const auto* tape = dispatch.buffer<const float>(1);
  const auto* queries = dispatch.buffer<const QueryArgs>(2);
  const auto* verifies = dispatch.buffer<const VerifyArgs>(3);
  const auto* accepted = dispatch.buffer<const uint32_t>(4);
  const auto& all = dispatch.args<GdnReplayArgs>(5);
  const GdnArgs& args = all.layer;
  const uint32_t state_groups = args.n_v_heads * (args.head_dim / kValues);
  const uint32_t layer_groups = state_groups + channels_of(args) / args.head_dim;
  const int result = for_each_group(dispatch, first, count, [&](uint32_t x, uint32_t y) {
    const uint32_t layer = x / layer_groups;
    const uint32_t group = x % layer_groups;
    const VerifyArgs& verify = verifies[y];
    const QueryArgs& query = queries[verify.query];
    const Verified verified{.args = args,
                            .query = query,
                            .tape = tape + layer * all.tape_stride +
                                    query.first_tape * args.tape_row_floats,
                            .bank = verify.bank,
                            .n_rows = 1 + accepted[y]};
    if (group < state_groups) {
      replay_state(banks + layer * all.state_stride, verified, group);
    } else {
      replay_conv_state(banks + layer * all.conv_stride, verified, group - state_groups);
    }
  });
#ifdef __x86_64__
  // What was written past the caches is seen before what the thread writes next.
  __builtin_ia32_sfence();
#endif
  return result;
}
