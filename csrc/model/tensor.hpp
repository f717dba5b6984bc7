// Views of memory with shapes, as the layer walk names them.
#pragma once
#include <cstdint>

#include "gpu/buffer.hpp"
#include "io/format.hpp"

namespace mtlqwen {

// Activations of one pass: (rows of the pass, cols) float32, row-major.
struct Activation {
  Span span;
  uint32_t cols = 0;
  Span int16{};  // the same as int16 rows (metal/int16.h); no bytes: nobody writes or reads them
};

// Bytes of an int16 row of `cols` elements.
[[nodiscard]] constexpr uint64_t int16_row_bytes(uint32_t cols) { return uint64_t{cols / 32} * 76; }

// A weight matrix: (n, k) in its file's format, row-major.
struct Matrix {
  Span span;
  Format format = Format::kF32;
  uint32_t n = 0;
  uint32_t k = 0;
};

}  // namespace mtlqwen
