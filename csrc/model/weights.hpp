// The tensors of one model by the engine's names, whichever way the files spell and store them.
#pragma once
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "io/gguf.hpp"
#include "io/weight_file.hpp"
#include "model/config.hpp"

namespace mtlqwen {

// A matrix inside a mapped file: rows of `cols` elements, one after the other.
struct MatrixRef {
  uint32_t file = 0;    // of Weights::file
  uint64_t offset = 0;  // bytes from the start of the file; any alignment
  Format format = Format::kF32;
  uint64_t rows = 0;
  uint64_t cols = 0;
};

// Opens a .gguf file, or a directory with config.json and safetensors. Names are the Hugging Face
// ones without prefix ("layers.3.mlp.up_proj.weight", "lm_head.weight"). After construction every
// tensor that the layers of config() need is known to be there, with the right shape and in a
// format that runs; other tensors (vision, multi-token prediction) are ignored. All errors are
// ModelError, or FormatError where a file is damaged. Const functions may be called from any
// thread.
class Weights {
 public:
  explicit Weights(const std::filesystem::path& path);

  [[nodiscard]] const ModelConfig& config() const { return config_; }

  // (rows, cols) as the checkpoint stores it; value heads in file order (config().k_head_tiled).
  [[nodiscard]] MatrixRef matrix(std::string_view name, uint64_t rows, uint64_t cols) const;

  // A small tensor as float32, in the engine's meaning: norms hold 1 + w (but linear_attn.norm,
  // which is plain), A_log holds -exp(A_log), conv1d is (channels, taps), the last tap the current
  // row.
  [[nodiscard]] std::vector<float> vector(std::string_view name, uint64_t count) const;

  // The mapped files, for wrapping whole pages without a copy.
  [[nodiscard]] uint32_t n_files() const { return static_cast<uint32_t>(files_.size()); }
  [[nodiscard]] const MappedFile& file(uint32_t index) const { return files_[index].file; }
  [[nodiscard]] uint64_t file_bytes() const;  // of all, in whole pages
  [[nodiscard]] static uint64_t page_bytes() { return os_page_bytes(); }

  // Empty for safetensors.
  [[nodiscard]] const GgufMetadata& metadata() const { return metadata_; }

 private:
  struct Place {
    uint32_t file;
    const TensorInfo* tensor;
  };

  void open_gguf(const std::filesystem::path& path);
  void open_directory(const std::filesystem::path& path);
  void check() const;

  [[nodiscard]] bool has(const std::string& file_name) const;
  [[nodiscard]] std::string find_prefix() const;
  [[nodiscard]] std::string file_name(std::string_view name) const;
  [[nodiscard]] Place place(std::string_view name, const std::vector<uint64_t>& shape) const;
  [[nodiscard]] Place vector_place(std::string_view name, uint64_t count) const;

  std::filesystem::path path_;
  bool gguf_ = false;
  std::string prefix_;     // of names in safetensors
  std::string head_name_;  // of the output head in the files
  ModelConfig config_;
  GgufMetadata metadata_;
  std::vector<WeightFile> files_;
};

}  // namespace mtlqwen
