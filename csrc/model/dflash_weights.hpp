// The tensors of a DFlash drafter.
#pragma once
#include <filesystem>
#include <string>
#include <string_view>

#include "model/config.hpp"
#include "model/dflash_config.hpp"
#include "model/tensor_files.hpp"

namespace mtlqwen {

// Opens a .gguf file, or a directory with config.json and safetensors. Names are the Hugging Face
// ones ("fc.weight", "layers.3.mlp.up_proj.weight"). After construction every tensor that config()
// wants is known to be there, with the right shape and in a format that runs, and the drafter to
// serve `target`. Norms hold w, in both formats. All errors are ModelError, or FormatError where a
// file is damaged.
class DflashWeights final : public TensorFiles {
 public:
  DflashWeights(const std::filesystem::path& path, const ModelConfig& target);

  [[nodiscard]] const DflashConfig& config() const { return config_; }

 private:
  void open_directory(const std::filesystem::path& path);
  void check_kind() const;
  [[nodiscard]] Spelling spelling(std::string_view name) const override;

  DflashConfig config_;
};

}  // namespace mtlqwen
