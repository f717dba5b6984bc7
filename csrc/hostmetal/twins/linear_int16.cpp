// linear_q8_0_int16_* and mlp_q8_0_int16_*: metal/linear_int16.metal and metal/mlp_int16.metal.
#include "linear_int16.h"
#include "q8_0.h"

namespace mtlqwen::twins {
namespace {

// An int16 row that many rows of weights are multiplied with.
class InputRow {
 public:
  MTLQWEN_INLINE InputRow(const uint8_t* row, uint32_t k)
      : quants_(int16_quants(row)), scales_(int16_scales(row, k)), qblocks_(k / kInt16Qblock) {}

  // Two totals: one would wait for its last addition.
  template <class Format>
  MTLQWEN_INLINE float dot(const uint8_t* weights) const {
    Wide totals[2] = {};
    uint32_t b = 0;
    for (; b + 2 <= qblocks_; b += 2) {
      __builtin_prefetch(weights + kAheadBytes);
      for (uint32_t i = 0; i < 2; ++i) {
        totals[i] = add<Format>(totals[i], weights, b + i);
        weights += Format::kQblockBytes;
      }
    }
    if (b < qblocks_) totals[0] = add<Format>(totals[0], weights, b);
    return fold(totals[0] + totals[1]);
  }

 private:
  template <class Format>
  [[nodiscard]] MTLQWEN_INLINE Wide add(Wide total, const uint8_t* qblock, uint32_t b) const {
    const auto x = *reinterpret_cast<const LoosePairs*>(quants_ + uint64_t{b} * kInt16Qblock);
    const WideInts products = multiply(Format::weights(qblock), x);
    return multiply_add(__builtin_convertvector(products, Wide),
                        Format::scale(qblock) * Wide(scales_[b]), total);
  }

  const int16_t* quants_;
  const float* scales_;
  uint32_t qblocks_;
};

// What linear_int16.h wants of a format.
struct Q8_0 {
  static uint64_t row_bytes(uint32_t k) { return FormatQ8_0::row_bytes(k); }
  static MTLQWEN_INLINE void multiply_row(float* sums, const uint8_t* x, const uint8_t* weights,
                                          uint32_t k, uint32_t n) {
    const InputRow row(x, k);
    for (uint32_t o = 0; o < n; ++o) {
      sums[o] = row.template dot<FormatQ8_0>(weights + o * row_bytes(k));
    }
  }
  static MTLQWEN_INLINE void multiply_panel(const uint8_t* weights, uint32_t k, const uint8_t* x,
                                            uint32_t n_rows, Wide* sums) {
    mtlqwen::twins::multiply_panel<FormatQ8_0>(weights, k, x, n_rows, sums);
  }
};

}  // namespace
}  // namespace mtlqwen::twins

using mtlqwen::twins::Q8_0;

MTLQWEN_TWIN(linear_q8_0_int16_row) {
  return mtlqwen::twins::linear_row(Q8_0(), dispatch, first, count);
}
MTLQWEN_TWIN(linear_q8_0_int16_panel) {
  return mtlqwen::twins::linear_panel(Q8_0(), dispatch, first, count);
}
MTLQWEN_TWIN(mlp_q8_0_int16_row) {
  return mtlqwen::twins::mlp_row(Q8_0(), Q8_0(), dispatch, first, count);
}
MTLQWEN_TWIN(mlp_q8_0_int16_panel) {
  return mtlqwen::twins::mlp_panel(Q8_0(), Q8_0(), dispatch, first, count);
}
