#include "io/format.hpp"

namespace mtlqwen {

const FormatInfo& info(Format format) {
  static constexpr FormatInfo kF32{Format::kF32, "F32", "f32", 1, 4, 16};
  static constexpr FormatInfo kF16{Format::kF16, "F16", "f16", 1, 2, 8};
  static constexpr FormatInfo kBF16{Format::kBF16, "BF16", "bf16", 1, 2, 8};
  static constexpr FormatInfo kQ8{Format::kQ8_0, "Q8_0", "q8_0", 32, 34, 2};
  switch (format) {
  case Format::kF32:
    return kF32;
  case Format::kF16:
    return kF16;
  case Format::kBF16:
    return kBF16;
  case Format::kQ8_0:
    return kQ8;
  }
  return kF32;
}

}  // namespace mtlqwen
