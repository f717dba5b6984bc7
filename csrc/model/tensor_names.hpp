// Every tensor of a target model and of its drafters: the engine's name, llama.cpp's name, and how
// its values are stored.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "model/config.hpp"
#include "model/dflash_config.hpp"

namespace mtlqwen {

// How Hugging Face files store a vector; GGUF files hold what acts.
enum class Stored : uint8_t { kPlain, kLessOne, kLogOfDecay };

// What one of the engine's names means in the files.
struct TensorName {
  std::string gguf;
  Stored stored = Stored::kPlain;
};

// Of a target model with its prediction head, which GGUF files hold as the block after the
// `n_layers` others. Throws ModelError for a name that no model has.
[[nodiscard]] TensorName tensor_name(std::string_view name, size_t n_layers);

// Of a DFlash drafter, whose norms are plain everywhere.
[[nodiscard]] TensorName dflash_tensor_name(std::string_view name);

// One tensor of the model with its shape: matrices are (rows, cols), vectors (count).
struct TensorSpec {
  std::string name;
  std::vector<uint64_t> shape;
};

// All tensors that a pass of the target needs, in the order of the walk.
[[nodiscard]] std::vector<TensorSpec> tensor_specs(const ModelConfig& config);

// All tensors of the target's prediction head, and of a drafter.
[[nodiscard]] std::vector<TensorSpec> mtp_tensor_specs(const ModelConfig& config);
[[nodiscard]] std::vector<TensorSpec> tensor_specs(const DflashConfig& config);

}  // namespace mtlqwen
