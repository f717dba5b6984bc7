// Storage formats of tensors, and what a file says about one tensor.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace mtlqwen {

enum class Format : uint8_t { kF32, kF16, kBF16, kQ8_0 };

// A qblock is the smallest run of elements that stands alone: 1 for plain floats, 32 for Q8_0.
struct FormatInfo {
  Format format;
  std::string_view name;         // "F32", "Q8_0", as files spell it
  std::string_view kernel_name;  // "f32", "q8_0", as kernels spell it
  uint32_t qblock_elements;
  uint32_t qblock_bytes;
  uint32_t alignment;  // of a kernel's widest load
};

[[nodiscard]] const FormatInfo& info(Format format);

// A tensor inside a mapped file. Shapes are row-major, outermost first (HF order; GGUF's ne is
// reversed on reading).
struct TensorInfo {
  std::string name;
  Format format = Format::kF32;
  std::vector<uint64_t> shape;
  uint64_t offset = 0;  // from the start of the file
  uint64_t bytes = 0;
};

}  // namespace mtlqwen
