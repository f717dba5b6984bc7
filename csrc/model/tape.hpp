// The tape: what verified rows did to the GDN layers, as kernel_args.h lays out a row; (layer, row) in one span. From it
// gdn_replay makes the state after those of them that were accepted.
#pragma once
#include <cstdint>

#include "base/math.hpp"
#include "model/config.hpp"

namespace mtlqwen {

// Of one row of one layer, in whole cache lines.
[[nodiscard]] inline uint64_t tape_row_floats(const ModelConfig& config) {
  constexpr uint64_t kLineFloats = 16;
  const uint64_t k = uint64_t{config.gdn_k_heads} * config.gdn_head_dim;
  const uint64_t delta = uint64_t{config.gdn_v_heads} * config.gdn_head_dim;
  return align_up(config.gdn_channels() + k + delta + config.gdn_v_heads, kLineFloats);
}

// Of `rows` rows of one layer: from one layer to the next.
[[nodiscard]] inline uint64_t tape_layer_floats(const ModelConfig& config, uint32_t rows) {
  return rows * tape_row_floats(config);
}

// Of all layers.
[[nodiscard]] inline uint64_t tape_floats(const ModelConfig& config, uint32_t rows) {
  return config.n_layers(LayerKind::kGdn) * tape_layer_floats(config, rows);
}

}  // namespace mtlqwen
