// Storage formats of tensors, and what a file says about one tensor.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace mtlqwen {

enum class Format : uint8_t {
  kF32,
  kF16,
  kBF16,
  kQ8_0,
  // Packed formats: they share their kernels, which take the number in GGUF as a function constant.
  kQ4_0,
  kQ4_1,
  kQ5_0,
  kQ5_1,
  kQ2_K,
  kQ3_K,
  kQ4_K,
  kQ5_K,
  kQ6_K,
  kIQ4_NL,
  kIQ4_XS,
  kMXFP4,
  kNVFP4,
  kIQ1_S,
  kIQ1_M,
  kIQ2_XXS,
  kIQ2_XS,
  kIQ2_S,
  kIQ3_XXS,
  kIQ3_S,
};

// A qblock is the smallest run of elements that stands alone: 1 for plain floats, 32 for Q8_0.
struct FormatInfo {
  Format format;
  std::string_view name;         // "F32", "Q8_0", as files spell it
  std::string_view kernel_name;  // "f32", "q8_0", as kernels spell it; "packed"
  uint32_t qblock_elements;
  uint32_t qblock_bytes;
  uint32_t alignment;  // of a kernel's widest load
  uint32_t gguf_type;

  [[nodiscard]] bool is_packed() const { return format > Format::kQ8_0; }
};

// All of them, in the order of the enumeration.
[[nodiscard]] std::span<const FormatInfo> formats();

[[nodiscard]] inline const FormatInfo& info(Format format) {
  return formats()[static_cast<size_t>(format)];
}

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
