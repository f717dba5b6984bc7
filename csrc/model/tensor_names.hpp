// Every tensor of a target model: the engine's name, llama.cpp's name, and how its values are
// stored.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "model/config.hpp"

namespace mtlqwen {

// How Hugging Face files store a vector; GGUF files hold what acts.
enum class Stored : uint8_t { kPlain, kLessOne, kLogOfDecay };

// What one of the engine's names means in the files.
struct TensorName {
  std::string gguf;
  Stored stored = Stored::kPlain;
};

// Throws ModelError for a name that no model has.
[[nodiscard]] TensorName tensor_name(std::string_view name);

// One tensor of the model with its shape: matrices are (rows, cols), vectors (count).
struct TensorSpec {
  std::string name;
  std::vector<uint64_t> shape;
};

// All tensors that a pass of the target needs, in the order of the walk.
[[nodiscard]] std::vector<TensorSpec> tensor_specs(const ModelConfig& config);

}  // namespace mtlqwen
