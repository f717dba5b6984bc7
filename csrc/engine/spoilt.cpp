#include "engine/spoilt.hpp"

#include <string>

#include "kernel_args.h"

namespace mtlqwen {

namespace {

// One beyond every layer's, whatever their number.
constexpr uint32_t kHead = MTLQWEN_NO_INDEX - 1;

// As the tensors of the part are called.
std::string name_of(uint32_t place, const ModelConfig& config) {
  if (place == kHead) return config.tied ? "embed_tokens (the head)" : "lm_head";
  if (place == 0) return "embed_tokens";
  const uint32_t layer = (place - 1) / 2;
  if (place % 2 == 0) return concat("layers.", layer, ".mlp");
  const bool attends = config.layers[layer] == LayerKind::kAttention;
  return concat("layers.", layer, attends ? ".self_attn" : ".linear_attn");
}

}  // namespace

std::optional<Spoilt> find_spoilt(const Query& query, uint32_t rows, const Committed& committed) {
  const PassResult& result = committed.result;
  Spoilt first{.place = MTLQWEN_NO_INDEX};
  const auto look = [&](uint32_t place, uint32_t row) {
    if (place < first.place) first = {.place = place, .position = query.kv_valid + row};
  };
  for (uint32_t row = 0; row < rows; ++row) look(result.spoilt[query.first_row + row], row);
  const auto look_at_logits = [&](uint32_t i, uint32_t row) {
    if (row >= rows) return;
    look(result.spoilt_logits[committed.n_logits + i], row);
    if (result.sampled[committed.n_logits + i] == MTLQWEN_SPOILT_LOGITS) look(kHead, row);
  };
  for (uint32_t i = 0; i < query.n_told; ++i) look_at_logits(i, query.first_told + i);
  for (uint32_t i = 0; i < query.n_sampled(); ++i) {
    look_at_logits(query.n_told + i, query.count - query.n_sampled() + i);
  }
  if (first.place == MTLQWEN_NO_INDEX) return std::nullopt;
  return first;
}

DeviceError error_of(const Spoilt& spoilt, const ModelConfig& config) {
  return DeviceError(concat("[engine] ", name_of(spoilt.place, config),
                            ": gave no number (got NaN or infinity for token ", spoilt.position,
                            " of the sequence); its weights are damaged: get the model's files "
                            "anew"));
}

}  // namespace mtlqwen
