// The files of one model, target or drafter: its tensors by the engine's names, whichever way the
// files spell and store them.
#pragma once
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "io/gguf.hpp"
#include "io/weight_file.hpp"
#include "model/tensor_names.hpp"

namespace mtlqwen {

// A matrix inside a mapped file: rows of `cols` elements, one after the other.
struct MatrixRef {
  uint32_t file = 0;    // of TensorFiles::file
  uint64_t offset = 0;  // bytes from the start of the file; any alignment
  Format format = Format::kF32;
  uint64_t rows = 0;
  uint64_t cols = 0;
};

// Names are the Hugging Face ones without prefix ("layers.3.mlp.up_proj.weight"). Errors are
// ModelError. Const functions may be called from any thread.
class TensorFiles {
 public:
  virtual ~TensorFiles() = default;

  // (rows, cols) as the checkpoint stores it.
  [[nodiscard]] MatrixRef matrix(std::string_view name, uint64_t rows, uint64_t cols) const;

  // A small tensor as float32, as it acts (Stored).
  [[nodiscard]] std::vector<float> vector(std::string_view name, uint64_t count) const;

  [[nodiscard]] const std::filesystem::path& path() const { return path_; }

  // The mapped files, for wrapping whole pages without a copy.
  [[nodiscard]] uint32_t n_files() const { return static_cast<uint32_t>(files_.size()); }
  [[nodiscard]] const MappedFile& file(uint32_t index) const { return files_[index].file; }
  [[nodiscard]] uint64_t file_bytes() const;  // of all, in whole pages
  [[nodiscard]] static uint64_t page_bytes() { return os_page_bytes(); }

 protected:
  struct Spelling {
    std::string name;  // in the files
    Stored stored = Stored::kPlain;
  };

  explicit TensorFiles(std::filesystem::path path) : path_(std::move(path)) {}
  TensorFiles(TensorFiles&&) = default;

  void add_gguf(GgufFile file) {
    gguf_ = true;
    files_.push_back(std::move(file.weights));
    for (WeightFile& part : file.more) files_.push_back(std::move(part));
  }
  void add_safetensors(std::vector<WeightFile> files) { files_ = std::move(files); }

  // How the files spell and store what the engine calls `name`.
  [[nodiscard]] virtual Spelling spelling(std::string_view name) const = 0;

  // Throws unless every tensor is there, with its shape and in a format that runs.
  void check(const std::vector<TensorSpec>& specs) const;

  [[nodiscard]] bool is_gguf() const { return gguf_; }
  [[nodiscard]] bool has(const std::string& file_name) const;
  [[nodiscard]] const std::vector<WeightFile>& files() const { return files_; }

 private:
  struct Place {
    uint32_t file;
    const TensorInfo* tensor;
  };
  [[nodiscard]] Place place(std::string_view name, const std::vector<uint64_t>& shape) const;
  void refuse_factor(std::string_view matrix) const;
  [[nodiscard]] Place vector_place(std::string_view name, uint64_t count) const;

  std::filesystem::path path_;
  bool gguf_ = false;
  std::vector<WeightFile> files_;
};

}  // namespace mtlqwen
