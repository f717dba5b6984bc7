// The shapes of one DFlash drafter, read from config.json or GGUF metadata and validated.
#pragma once
#include <array>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "io/gguf.hpp"
#include "model/config.hpp"

namespace mtlqwen {

struct DflashLayer {
  uint32_t window = 0;  // positions that a row sees before itself, itself included; 0: all
  bool causal = false;  // rows of a block see nothing behind themselves
};

// Invariant of a validated config: as ModelConfig's. A drafter has no embedding and no output head:
// both are its target's.
struct DflashConfig {
  uint32_t hidden = 0;
  uint32_t intermediate = 0;
  uint32_t vocab = 0;  // of its target; 0 where the file does not say
  float eps = 0.0F;    // of all RMS norms
  std::vector<DflashLayer> layers;

  uint32_t n_heads = 0;
  uint32_t n_kv_heads = 0;
  uint32_t head_dim = 0;  // all of it rotates
  double rope_theta = 0.0;

  uint32_t block_size = 0;       // rows that it was trained on: the anchor and its proposals
  uint32_t mask_id = 0;          // the id of every row but the anchor's
  float embedding_scale = 1.0F;  // of the tokens' embeddings; no other runs
  std::vector<uint32_t> taps;    // layers of the target, from 0, ascending: the residual after each
  // As its file says them, for messages: the key, and what it calls the target's first layer.
  std::string_view taps_key;
  uint32_t first_tap = 0;

  [[nodiscard]] uint32_t n_layers() const { return static_cast<uint32_t>(layers.size()); }
  [[nodiscard]] uint32_t n_taps() const { return static_cast<uint32_t>(taps.size()); }
  [[nodiscard]] uint64_t written_tap(uint32_t tap) const { return uint64_t{tap} + first_tap; }
};

// Both readers throw ModelError, naming the key, what was found and what runs.
[[nodiscard]] DflashConfig read_dflash_hf_config(const std::filesystem::path& directory);
[[nodiscard]] DflashConfig read_dflash_gguf_config(const GgufFile& file);

// Fields, in either format, of drafters that came after DFlash and draft otherwise: DFlash2's
// convolutions and selector, DSpark's heads. Absent, 0 or false they mean nothing.
inline constexpr std::array<std::string_view, 7> kOtherDrafterKeys = {
    "conv_kernel_size", "conv_group_size",    "selector_rank",       "selector_top_k",
    "markov_rank",      "sample_from_anchor", "log_snr_conditioning"};
[[noreturn]] void fail_other_drafter(const std::string& subject, const std::string& found);

// Throws ModelError unless the invariant holds; `subject` begins the message.
void validate(const DflashConfig& config, const std::string& subject);

// Throws ModelError unless the drafter can serve this target.
void check_target(const DflashConfig& config, const ModelConfig& target,
                  const std::string& subject);

// Where a config names no taps: as many as the drafter has layers, spread over the target's.
[[nodiscard]] std::vector<uint32_t> default_taps(uint32_t target_layers, uint32_t n_layers);

}  // namespace mtlqwen
