// One mapped weight file with its directory, whatever its format.
#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "io/format.hpp"
#include "io/mapped_file.hpp"

namespace mtlqwen {

// A tensor whose format the engine has no kernels for: kept by name, so that the error can name it
// only if it is needed.
struct UnsupportedTensor {
  std::string format;
  std::vector<uint64_t> shape;
  uint64_t bytes = 0;  // to where the next tensor begins, in a GGUF file
};

// Invariant: every tensor lies inside the file, and bytes agrees with format and shape.
struct WeightFile {
  MappedFile file;
  std::unordered_map<std::string, TensorInfo> tensors;
  std::unordered_map<std::string, UnsupportedTensor> unsupported;
};

}  // namespace mtlqwen
