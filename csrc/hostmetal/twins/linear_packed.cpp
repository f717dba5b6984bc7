// The kernels of metal/linear_packed.metal over int16 rows.
#include "linear_int16.h"
#include "packed.h"

namespace mtlqwen::twins {
namespace {

template <uint32_t kScales, uint32_t kOffsets>
__attribute__((noinline, min_vector_width(512))) void
multiply_packed(const PackedKernels& format, const uint8_t* weights, uint32_t k, const uint8_t* x,
                uint32_t n_rows, Wide* sums) {
  const uint64_t row_bytes = format.row_bytes(k);
  const uint32_t parts = format.elements / kInt16Qblock;
  const auto unpack = [&](Panel& panel, uint32_t b, uint32_t count, Ahead& ahead,
                          uint64_t ahead_bytes) {
    const uint8_t* qblock = weights + uint64_t{b / parts} * format.bytes;
    for (uint32_t i = 0; i < count; i += parts) {
      ahead.advance(ahead_bytes * parts);
      format.unpack_panel(panel, i, qblock, row_bytes);
      qblock += format.bytes;
    }
  };
  multiply_panels<kScales, kOffsets>(unpack, weights, row_bytes, k, x, n_rows, sums);
}

// What linear_int16.h wants of a format.
class Packed {
 public:
  explicit Packed(uint32_t format) : kernels_(packed_kernels(format)) {}

  [[nodiscard]] uint64_t row_bytes(uint32_t k) const { return kernels_.row_bytes(k); }
  void multiply_row(float* sums, const uint8_t* x, const uint8_t* weights, uint32_t k,
                    uint32_t n) const {
    kernels_.multiply(sums, x, weights, k, n);
  }
  void multiply_panel(const uint8_t* weights, uint32_t k, const uint8_t* x, uint32_t n_rows,
                      Wide* sums) const {
    const auto multiply = kernels_.offsets == 1   ? multiply_packed<1, 1>
                          : kernels_.offsets == 2 ? multiply_packed<2, 2>
                          : kernels_.scales == 1  ? multiply_packed<1, 0>
                                                  : multiply_packed<2, 0>;
    multiply(kernels_, weights, k, x, n_rows, sums);
  }

 private:
  const PackedKernels& kernels_;
};

Packed format_of(const Dispatch& dispatch, uint32_t constant) {
  return Packed(dispatch.constant<uint32_t>(constant));
}

constexpr uint32_t kFormat = 2;  // function constants
constexpr uint32_t kUpFormat = 3;

}  // namespace
}  // namespace mtlqwen::twins

MTLQWEN_TWIN(linear_packed_int16_row) {
  using namespace mtlqwen::twins;
  return linear_row(format_of(dispatch, kFormat), dispatch, first, count);
}
MTLQWEN_TWIN(linear_packed_int16_panel) {
  using namespace mtlqwen::twins;
  return linear_panel(format_of(dispatch, kFormat), dispatch, first, count);
}
MTLQWEN_TWIN(mlp_packed_int16_row) {
  using namespace mtlqwen::twins;
  return mlp_row(format_of(dispatch, kFormat), format_of(dispatch, kUpFormat), dispatch, first,
                 count);
}
MTLQWEN_TWIN(mlp_packed_int16_panel) {
  using namespace mtlqwen::twins;
  return mlp_panel(format_of(dispatch, kFormat), format_of(dispatch, kUpFormat), dispatch, first,
                   count);
}
