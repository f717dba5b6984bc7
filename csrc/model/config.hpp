// The shapes of one Qwen 3.5 model, read from config.json or GGUF metadata and validated.
#pragma once
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "io/gguf.hpp"

namespace mtlqwen {

enum class LayerKind : uint8_t { kGdn, kAttention };

// Invariant of a validated config: every value is positive and in the range that the kernels take,
// counts divide as the architecture wants, and no product of a shape overflows 32 bits.
struct ModelConfig {
  std::string architecture;  // "qwen3_5" or "qwen35", as the file says
  uint32_t hidden = 0;
  uint32_t intermediate = 0;
  uint32_t vocab = 0;           // rows of the embedding
  uint32_t n_valid_tokens = 0;  // ids at or past it are padding and never sampled
  uint32_t max_context = 0;     // tokens
  bool tied = false;            // the embedding is the output head
  float eps = 0.0F;             // of all RMS norms
  std::vector<LayerKind> layers;

  uint32_t n_heads = 0;  // gated attention
  uint32_t n_kv_heads = 0;
  uint32_t head_dim = 0;
  uint32_t rotary_dim = 0;
  double rope_theta = 0.0;

  uint32_t gdn_k_heads = 0;
  uint32_t gdn_v_heads = 0;
  uint32_t gdn_head_dim = 0;  // of keys and of values
  bool k_head_tiled = false;  // GGUF order: value head v uses key head v % gdn_k_heads

  uint32_t mtp_layers = 0;
  std::vector<int32_t> eos_ids;

  [[nodiscard]] uint32_t gdn_channels() const {
    return (2 * gdn_k_heads + gdn_v_heads) * gdn_head_dim;
  }
  [[nodiscard]] uint32_t n_layers(LayerKind kind) const;
};

inline constexpr uint32_t kConvTaps = 4;  // the family's only value

// Both readers throw ModelError, naming the key, what was found and what runs. `has_head`: the
// weights have an output head of their own.
[[nodiscard]] ModelConfig read_hf_config(const std::filesystem::path& directory, bool has_head);
[[nodiscard]] ModelConfig read_gguf_config(const GgufFile& file, bool has_head);

// Throws ModelError unless the invariant holds; `subject` begins the message.
void validate(const ModelConfig& config, const std::string& subject);

}  // namespace mtlqwen
