// The tensors of a target model, and of the prediction head that its files may hold.
#pragma once
#include <filesystem>
#include <string>
#include <string_view>

#include "io/gguf.hpp"
#include "model/config.hpp"
#include "model/tensor_files.hpp"

namespace mtlqwen {

// Opens a .gguf file, or a directory with config.json and safetensors. Names are the Hugging Face
// ones without prefix ("layers.3.mlp.up_proj.weight", "lm_head.weight"); those of the head begin
// with "mtp.". After construction every tensor that the layers of config() need is known to be
// there, with the right shape and in a format that runs; other tensors (vision) are ignored. Value
// heads are in file order (config().k_head_tiled). Vectors are in the engine's meaning: norms hold
// 1 + w (but linear_attn.norm, which is plain), A_log holds -exp(A_log), conv1d is (channels,
// taps), the last tap the current row. All errors are ModelError, or FormatError where a file is
// damaged.
class Weights final : public TensorFiles {
 public:
  explicit Weights(const std::filesystem::path& path);

  [[nodiscard]] const ModelConfig& config() const { return config_; }

  // Whether the multi-token prediction head is there whole and runs.
  [[nodiscard]] bool has_mtp() const { return mtp_problem_.empty(); }
  // What a head lacks that does not run, as the text of a ModelError; else empty.
  [[nodiscard]] const std::string& mtp_problem() const { return mtp_problem_; }

  // Empty for safetensors.
  [[nodiscard]] const GgufMetadata& metadata() const { return metadata_; }

 private:
  void open_gguf(const std::filesystem::path& path);
  void open_directory(const std::filesystem::path& path);
  void find_mtp();

  [[nodiscard]] std::string find_prefix() const;
  [[nodiscard]] std::string find_mtp_prefix() const;
  [[nodiscard]] Spelling spelling(std::string_view name) const override;

  std::string prefix_;      // of names in safetensors
  std::string mtp_prefix_;  // of those that begin with "mtp."
  std::string head_name_;   // of the output head in the files
  std::string mtp_problem_;
  ModelConfig config_;
  GgufMetadata metadata_;
};

}  // namespace mtlqwen
