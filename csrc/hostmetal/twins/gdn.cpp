// What stands before the delta rule: the convolution, what it remembers, the gates.
#include "gdn.h"

#include "math.h"
#include "twin.h"

namespace mtlqwen::twins {
namespace {

constexpr uint32_t kTaps = 4;
constexpr float kL2Eps = 1e-6F;

// Asks for what the head that begins at `channel` reads from memory, its weights and what the bank
// remembers: pieces too short for the hardware to see them coming.
inline void ask_head(const float* weight, const float* banks, const QueryArgs& query,
                     const GdnArgs& args, uint32_t channel) {
  constexpr uint32_t kLine = 16;  // floats
  for (uint32_t i = 0; i < args.head_dim * kTaps; i += kLine) {
    __builtin_prefetch(weight + uint64_t{channel} * kTaps + i);
  }
  for (int32_t row = -3; row < 0 && query.kv_valid != 0; ++row) {
    const float* from = raw_row(nullptr, 0, banks, query, args, row, channel);
    for (uint32_t i = 0; i < args.head_dim; i += kLine) __builtin_prefetch(from + i);
  }
}

#define MTLQWEN_TAP(J) J, J + 4, J + 8, J + 12, J + 16, J + 20, J + 24, J + 28
#define MTLQWEN_ALL 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15
// Tap J of 16 channels whose four taps stand together.
#define MTLQWEN_TAP_OF(W, J)                                                                       \
  __builtin_shufflevector(__builtin_shufflevector(W[0], W[1], MTLQWEN_TAP(J)),                     \
                          __builtin_shufflevector(W[2], W[3], MTLQWEN_TAP(J)), MTLQWEN_ALL)

// One head of one row. `scale`: what a q or k head is multiplied with after its length; 0 for v.
template <uint32_t kDim>
MTLQWEN_INLINE void convolve(float* out, const float* const (&rows)[kTaps], const float* weight,
                             float scale) {
  Wide y[kDim / kWide];
  Wide squares = 0.0F;
#pragma unroll
  for (uint32_t i = 0; i < kDim / kWide; i++) {
    Wide w[kTaps];
#pragma unroll
    for (uint32_t j = 0; j < kTaps; j++) w[j] = load(weight + i * kWide * kTaps + j * kWide);
    Wide sum = MTLQWEN_TAP_OF(w, 0) * load(rows[0] + i * kWide);
    sum = multiply_add(MTLQWEN_TAP_OF(w, 1), load(rows[1] + i * kWide), sum);
    sum = multiply_add(MTLQWEN_TAP_OF(w, 2), load(rows[2] + i * kWide), sum);
    sum = multiply_add(MTLQWEN_TAP_OF(w, 3), load(rows[3] + i * kWide), sum);
    y[i] = silu(sum);
    squares = multiply_add(y[i], y[i], squares);
  }
  float factor = 1.0F;
  if (scale != 0.0F) factor = 1.0F / __builtin_sqrtf(fold(squares) + kL2Eps) * scale;
#pragma unroll
  for (uint32_t i = 0; i < kDim / kWide; i++) store(out + i * kWide, y[i] * factor);
}

// What the tape keeps of the query's row `index`: the head's channels of qkv and, where it is one of k,
// the head as it comes out of the convolution.
inline void put_tape(float* tape, const float* raw, const float* out, const QueryArgs& query,
                     const GdnArgs& args, uint32_t index, uint32_t head) {
  float* row = tape + (query.first_tape + index) * args.tape_row_floats;
  const uint64_t bytes = args.head_dim * sizeof(float);
  __builtin_memcpy(row + head * args.head_dim, raw, bytes);
  if (head < args.n_k_heads || head >= 2 * args.n_k_heads) return;
  __builtin_memcpy(row + tape_k((head - args.n_k_heads) * args.head_dim, args), out, bytes);
}

// The first n of 16 floats; the others are 0.
inline Wide load_some(const float* from, uint32_t n) {
  alignas(64) float values[kWide] = {};
  __builtin_memcpy(values, from, n * sizeof(float));
  return load(values);
}

// log(1 + exp(x)), by the series of metal/activation.h.
MTLQWEN_INLINE Wide softplus(Wide x) {
  const Wide e = exp(-__builtin_elementwise_abs(x));
  const Wide s = e / (e + 2.0F);
  const Wide t = s * s;
  Wide p = 1.0F / 15.0F;
  p = multiply_add(p, t, Wide(1.0F / 13.0F));
  p = multiply_add(p, t, Wide(1.0F / 11.0F));
  p = multiply_add(p, t, Wide(1.0F / 9.0F));
  p = multiply_add(p, t, Wide(1.0F / 7.0F));
  p = multiply_add(p, t, Wide(1.0F / 5.0F));
  p = multiply_add(p, t, Wide(1.0F / 3.0F));
  p = multiply_add(p, t, Wide(1.0F));
  return multiply_add(s * 2.0F, p, __builtin_elementwise_max(x, Wide(0.0F)));
}

}  // namespace
}  // namespace mtlqwen::twins

MTLQWEN_TWIN(gdn_conv) {
  using namespace mtlqwen;
  using namespace mtlqwen::twins;
  auto* act = dispatch.buffer<float>(0);
  auto* tape = dispatch.buffer<float>(1);
  const auto* qkv = dispatch.buffer<const float>(2);
  const auto* weight = dispatch.buffer<const float>(3);
  const auto* banks = dispatch.buffer<const float>(4);
  const auto* queries = dispatch.buffer<const QueryArgs>(5);
  const auto* row_query = dispatch.buffer<const uint32_t>(6);
  const auto& args = dispatch.args<GdnArgs>(7);
  const uint64_t channels = channels_of(args);
  const float q_scale = 1.0F / __builtin_sqrtf(static_cast<float>(args.head_dim));
  return for_each_group(dispatch, first, count, [&](uint32_t x, uint32_t y) {
    const uint32_t channel = x * args.head_dim;
    const QueryArgs& query = queries[row_query[y]];
    const uint32_t index = y - query.first_row;
    if (index == 0 && x + 1 < dispatch.groups_x()) {
      ask_head(weight, banks, query, args, channel + args.head_dim);
    }
    const float* rows[kTaps];
    for (uint32_t j = 0; j < kTaps; j++) {
      rows[j] = raw_row(qkv + query.first_row * channels, channels, banks, query, args,
                        static_cast<int32_t>(index + j) - 3, channel);
    }
    const float scale = x < args.n_k_heads ? q_scale : x < 2 * args.n_k_heads ? 1.0F : 0.0F;
    float* out = act + y * channels + channel;
    if (args.head_dim == 128) {
      convolve<128>(out, rows, weight + channel * kTaps, scale);
    } else {
      convolve<64>(out, rows, weight + channel * kTaps, scale);
    }
    if (is_taped(query)) put_tape(tape, rows[kTaps - 1], out, query, args, index, x);
  });
}

MTLQWEN_TWIN(gdn_conv_state) {
  using namespace mtlqwen;
  using namespace mtlqwen::twins;
  auto* banks = dispatch.buffer<float>(0);
  const auto* qkv = dispatch.buffer<const float>(1);
  const auto* queries = dispatch.buffer<const QueryArgs>(2);
  const auto* writes = dispatch.buffer<const StateWriteArgs>(3);
  const auto& args = dispatch.args<GdnArgs>(4);
  const uint64_t channels = channels_of(args);
  return for_each_group(dispatch, first, count, [&](uint32_t x, uint32_t y) {
    const uint32_t channel = x * args.head_dim;
    const StateWriteArgs& write = writes[y];
    const QueryArgs& query = queries[write.query];
    float* state = banks + bank_start(write.bank, args) + args.conv_offset + channel;
    for (int32_t row = 0; row < 3; row++) {
      const int32_t index = static_cast<int32_t>(write.rows) - 3 + row;
      __builtin_memcpy(
          state + static_cast<uint32_t>(row) * channels,
          raw_row(qkv + query.first_row * channels, channels, banks, query, args, index, channel),
          args.head_dim * sizeof(float));
    }
  });
}

MTLQWEN_TWIN(gdn_gates) {
  using namespace mtlqwen;
  using namespace mtlqwen::twins;
  auto* gates = dispatch.buffer<float>(0);
  const auto* a = dispatch.buffer<const float>(1);
  const auto* b = dispatch.buffer<const float>(2);
  const auto* rate = dispatch.buffer<const float>(3);
  const auto* dt_bias = dispatch.buffer<const float>(4);
  const auto& args = dispatch.args<GdnArgs>(5);
  return for_each_group(dispatch, first, count, [&](uint32_t /*x*/, uint32_t y) {
    for (uint32_t head = 0; head < args.n_v_heads; head += kWide) {
      const uint32_t left = args.n_v_heads - head;
      const uint32_t n = left < kWide ? left : kWide;
      const uint64_t place = uint64_t{y} * args.n_v_heads + head;
      const Wide bias = load_some(dt_bias + head, n);
      const Wide decay = exp(load_some(rate + head, n) * softplus(load_some(a + place, n) + bias));
      const Wide beta = sigmoid(load_some(b + place, n));
      for (uint32_t i = 0; i < n; i++) {
        gates[(place + i) * 2] = decay[i];
        gates[(place + i) * 2 + 1] = beta[i];
      }
    }
  });
}
