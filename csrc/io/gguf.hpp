// Reader of GGUF files, versions 2 and 3, little-endian: the whole directory, no tensor data. A file
// in parts is read as one.
#pragma once
#include <filesystem>
#include <vector>

#include "io/gguf_metadata.hpp"
#include "io/weight_file.hpp"

namespace mtlqwen {

struct GgufFile {
  WeightFile weights;
  GgufMetadata metadata;
  std::vector<WeightFile> more;  // the parts after the first; the first has the metadata

  // Whether it runs or not.
  [[nodiscard]] bool has(const std::string& name) const;
  // Null where it is missing or does not run.
  [[nodiscard]] const TensorInfo* find(const std::string& name) const;
};

// Of a file in parts, `path` is the first, and the others lie beside it. Throws FormatError where
// anything in a file contradicts the format, the file's own length or the other parts.
[[nodiscard]] GgufFile read_gguf(const std::filesystem::path& path);

}  // namespace mtlqwen
