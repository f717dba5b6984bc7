#include "model/scratch.hpp"

#include "base/types.hpp"
#include "kernel_args.h"

namespace mtlqwen {

namespace {

// One definition for two runs: the first sums the sizes, the second hands out the parts.
template <class Take>
Activations lay_out(const ModelConfig& config, const ScratchShape& shape, Take take) {
  const auto some_rows = [&](uint32_t n, uint32_t cols, bool int16) {
    return Activation{.span = take(uint64_t{n} * cols * sizeof(float)),
                      .cols = cols,
                      .int16 = int16 ? take(n * int16_row_bytes(cols)) : Span{}};
  };
  const auto rows = [&](uint32_t cols) { return some_rows(shape.rows, cols, false); };
  const auto linear_rows = [&](uint32_t cols) { return some_rows(shape.rows, cols, shape.int16); };
  const uint64_t head_floats = uint64_t{kPartialCapacity} * config.n_heads;
  const uint32_t attention_cols = config.n_heads * config.head_dim;
  const uint32_t kv_cols = config.n_kv_heads * config.head_dim;
  const uint32_t value_cols = config.gdn_v_heads * config.gdn_head_dim;
  return {.hidden = rows(config.hidden),
          .normed = linear_rows(config.hidden),
          .query_gate = rows((shape.gated ? 2 : 1) * attention_cols),
          .key = rows(kv_cols),
          .value = rows(kv_cols),
          .query = rows(attention_cols),
          .partial = take(head_floats * config.head_dim * sizeof(float)),
          .stats = take(head_floats * 2 * sizeof(float)),
          .attended = linear_rows(attention_cols),
          .qkv = rows(config.gdn_channels()),
          .z = rows(value_cols),
          .a = rows(config.gdn_v_heads),
          .b = rows(config.gdn_v_heads),
          .convolved = rows(config.gdn_channels()),
          .gates = rows(2 * config.gdn_v_heads),
          .delta_out = rows(value_cols),
          .delta_gated = linear_rows(value_cols),
          .gate = rows(config.intermediate),
          .up = rows(config.intermediate),
          .gated = linear_rows(config.intermediate),
          .last_hidden = some_rows(shape.sampled_rows, config.hidden, false),
          .last_normed = some_rows(shape.sampled_rows, config.hidden, shape.int16),
          .logits = {},
          .candidates = {}};
}

uint64_t candidate_bytes(const ModelConfig& config, const ScratchShape& shape) {
  return uint64_t{shape.sampled_rows} * sample_chunks(config.vocab) * sizeof(Candidate);
}

uint64_t logit_bytes(const ModelConfig& config, const ScratchShape& shape) {
  return uint64_t{shape.sampled_rows} * config.vocab * sizeof(float);
}

}  // namespace

uint32_t sample_chunks(uint32_t vocab) { return (vocab - 1) / kSampleChunk + 1; }

uint64_t layer_scratch_bytes(const ModelConfig& config, const ScratchShape& shape) {
  uint64_t total = 0;
  lay_out(config, shape, [&](uint64_t bytes) {
    total += Arena::padded(bytes);
    return Span{};
  });
  return total;
}

Activations take_layer_scratch(Arena& arena, const ModelConfig& config, const ScratchShape& shape) {
  return lay_out(config, shape, [&](uint64_t bytes) { return arena.take(bytes); });
}

uint64_t pass_rows_bytes(uint32_t cols, bool int16) {
  return Arena::padded(uint64_t{kPassRows} * cols * sizeof(float)) +
         (int16 ? Arena::padded(kPassRows * int16_row_bytes(cols)) : 0);
}

Activation take_pass_rows(Arena& arena, uint32_t cols, bool int16) {
  return {.span = arena.take(uint64_t{kPassRows} * cols * sizeof(float)),
          .cols = cols,
          .int16 = int16 ? arena.take(kPassRows * int16_row_bytes(cols)) : Span{}};
}

Scratch::Scratch(Device& device, const ModelConfig& config, const ScratchShape& shape)
    : pass_(device,
            layer_scratch_bytes(config, shape) + Arena::padded(candidate_bytes(config, shape)),
            Storage::kPrivate, "scratch"),
      logits_(device, logit_bytes(config, shape), Storage::kShared, "logits"),
      activations_(take_layer_scratch(pass_, config, shape)) {
  activations_.candidates = pass_.take(candidate_bytes(config, shape));
  activations_.logits = {.span = logits_.take(logit_bytes(config, shape)), .cols = config.vocab};
}

const float* Scratch::logits(uint32_t row) const {
  return static_cast<const float*>(logits_.at(activations_.logits.span)) +
         uint64_t{row} * activations_.logits.cols;
}

}  // namespace mtlqwen
