// Readers of safetensors: one file, or a checkpoint directory of one or several.
#pragma once
#include <filesystem>
#include <vector>

#include "io/weight_file.hpp"

namespace mtlqwen {

// Throws FormatError where the header is wrong or a tensor leaves the file or overlaps another.
[[nodiscard]] WeightFile read_safetensors(const std::filesystem::path& path);

// model.safetensors, or the shards that model.safetensors.index.json names, in order of their
// names. Every tensor of the index must lie in its shard, and no name may occur in two shards.
[[nodiscard]] std::vector<WeightFile> read_safetensors_directory(const std::filesystem::path& path);

}  // namespace mtlqwen
