// Reader of GGUF files, versions 2 and 3, little-endian: the whole directory, no tensor data.
#pragma once
#include <filesystem>

#include "io/gguf_metadata.hpp"
#include "io/weight_file.hpp"

namespace mtlqwen {

struct GgufFile {
  WeightFile weights;
  GgufMetadata metadata;
};

// Throws FormatError where anything in the file contradicts the format or the file's own length.
[[nodiscard]] GgufFile read_gguf(const std::filesystem::path& path);

}  // namespace mtlqwen
