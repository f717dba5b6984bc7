#include "model/scratch.hpp"

#include "base/types.hpp"
#include "kernel_args.h"

namespace mtlqwen {

namespace {

// One definition for two runs: the first sums the sizes, the second hands out the parts.
template <class Take>
Activations lay_out(const ModelConfig& config, uint32_t slots, uint32_t sample_chunks, Take take) {
  const auto rows = [&](uint32_t cols) {
    return Activation{.span = take(uint64_t{kPassRows} * cols * sizeof(float)), .cols = cols};
  };
  const auto last_rows = [&](uint32_t cols) {
    return Activation{.span = take(uint64_t{slots} * cols * sizeof(float)), .cols = cols};
  };
  const uint64_t head_floats = uint64_t{kPartialCapacity} * config.n_heads;
  const uint32_t attention_cols = config.n_heads * config.head_dim;
  const uint32_t kv_cols = config.n_kv_heads * config.head_dim;
  const uint32_t value_cols = config.gdn_v_heads * config.gdn_head_dim;
  return {.hidden = rows(config.hidden),
          .normed = rows(config.hidden),
          .query_gate = rows(2 * attention_cols),
          .key = rows(kv_cols),
          .value = rows(kv_cols),
          .query = rows(attention_cols),
          .partial = take(head_floats * config.head_dim * sizeof(float)),
          .stats = take(head_floats * 2 * sizeof(float)),
          .attended = rows(attention_cols),
          .qkv = rows(config.gdn_channels()),
          .z = rows(value_cols),
          .a = rows(config.gdn_v_heads),
          .b = rows(config.gdn_v_heads),
          .convolved = rows(config.gdn_channels()),
          .gates = rows(2 * config.gdn_v_heads),
          .delta_out = rows(value_cols),
          .delta_gated = rows(value_cols),
          .gate = rows(config.intermediate),
          .up = rows(config.intermediate),
          .gated = rows(config.intermediate),
          .last_hidden = last_rows(config.hidden),
          .last_normed = last_rows(config.hidden),
          .logits = {},
          .candidates = take(uint64_t{slots} * sample_chunks * sizeof(Candidate))};
}

uint64_t total_bytes(const ModelConfig& config, uint32_t slots, uint32_t sample_chunks) {
  uint64_t total = 0;
  lay_out(config, slots, sample_chunks, [&](uint64_t bytes) {
    total += Arena::padded(bytes);
    return Span{};
  });
  return total;
}

}  // namespace

Scratch::Scratch(Device& device, const ModelConfig& config, uint32_t slots, uint32_t sample_chunks)
    : pass_(device, total_bytes(config, slots, sample_chunks), Storage::kPrivate, "scratch"),
      logits_(device, uint64_t{slots} * config.vocab * sizeof(float), Storage::kShared, "logits"),
      activations_(lay_out(config, slots, sample_chunks,
                           [&](uint64_t bytes) { return pass_.take(bytes); })) {
  activations_.logits = {.span = logits_.take(uint64_t{slots} * config.vocab * sizeof(float)),
                         .cols = config.vocab};
}

const float* Scratch::logits(uint32_t row) const {
  return static_cast<const float*>(logits_.at(activations_.logits.span)) +
         uint64_t{row} * activations_.logits.cols;
}

}  // namespace mtlqwen
