#include "io/format.hpp"

#include <array>

namespace mtlqwen {
namespace {

// Numbers of the types: ggml.h of llama.cpp.
constexpr std::array kFormats = {
    FormatInfo{Format::kF32, "F32", "f32", 1, 4, 16, 0},
    FormatInfo{Format::kF16, "F16", "f16", 1, 2, 8, 1},
    FormatInfo{Format::kBF16, "BF16", "bf16", 1, 2, 8, 30},
    FormatInfo{Format::kQ8_0, "Q8_0", "q8_0", 32, 34, 2, 8},
    FormatInfo{Format::kQ4_0, "Q4_0", "packed", 32, 18, 2, 2},
    FormatInfo{Format::kQ4_1, "Q4_1", "packed", 32, 20, 2, 3},
    FormatInfo{Format::kQ5_0, "Q5_0", "packed", 32, 22, 2, 6},
    FormatInfo{Format::kQ5_1, "Q5_1", "packed", 32, 24, 2, 7},
    FormatInfo{Format::kQ2_K, "Q2_K", "packed", 256, 84, 2, 10},
    FormatInfo{Format::kQ3_K, "Q3_K", "packed", 256, 110, 2, 11},
    FormatInfo{Format::kQ4_K, "Q4_K", "packed", 256, 144, 2, 12},
    FormatInfo{Format::kQ5_K, "Q5_K", "packed", 256, 176, 2, 13},
    FormatInfo{Format::kQ6_K, "Q6_K", "packed", 256, 210, 2, 14},
    FormatInfo{Format::kIQ4_NL, "IQ4_NL", "packed", 32, 18, 2, 20},
    FormatInfo{Format::kIQ4_XS, "IQ4_XS", "packed", 256, 136, 2, 23},
    FormatInfo{Format::kMXFP4, "MXFP4", "packed", 32, 17, 1, 39},
    FormatInfo{Format::kNVFP4, "NVFP4", "packed", 64, 36, 1, 40},
    FormatInfo{Format::kIQ1_S, "IQ1_S", "packed", 256, 50, 2, 19},
    FormatInfo{Format::kIQ1_M, "IQ1_M", "packed", 256, 56, 2, 29},
    FormatInfo{Format::kIQ2_XXS, "IQ2_XXS", "packed", 256, 66, 2, 16},
    FormatInfo{Format::kIQ2_XS, "IQ2_XS", "packed", 256, 74, 2, 17},
    FormatInfo{Format::kIQ2_S, "IQ2_S", "packed", 256, 82, 2, 22},
    FormatInfo{Format::kIQ3_XXS, "IQ3_XXS", "packed", 256, 98, 2, 18},
    FormatInfo{Format::kIQ3_S, "IQ3_S", "packed", 256, 110, 2, 21},
};

constexpr bool is_in_order() {
  for (size_t i = 0; i < kFormats.size(); ++i) {
    if (static_cast<size_t>(kFormats[i].format) != i) return false;
  }
  return true;
}
static_assert(is_in_order() && kFormats.back().format == Format::kIQ3_S);

}  // namespace

std::span<const FormatInfo> formats() { return kFormats; }

}  // namespace mtlqwen
