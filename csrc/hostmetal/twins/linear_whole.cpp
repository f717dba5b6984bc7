// linear_packed_whole: metal/linear_packed.metal. A run of weights is unpacked once for all rows; a
// row's chain of additions does not depend on the others.
#include "packed.h"
#include "twin.h"

namespace mtlqwen::twins {
namespace {

constexpr uint32_t kOutputs = 64;    // of a threadgroup
constexpr uint32_t kMostRows = 128;  // of a pass
constexpr uint32_t kRun = 512;       // a multiple of every format's qblock

__attribute__((min_vector_width(512))) void multiply_run(const float* weights, uint32_t n,
                                                         const float* x, uint32_t k, uint32_t rows,
                                                         Wide* sums) {
  for (uint32_t r = 0; r < rows; ++r) {
    Wide sum = sums[r];
    for (uint32_t i = 0; i < n; i += kWide) {
      sum = multiply_add(load(weights + i), load(x + uint64_t{r} * k + i), sum);
    }
    sums[r] = sum;
  }
}

__attribute__((min_vector_width(512))) void multiply_output(const PackedKernels& format,
                                                            const uint8_t* weights, const float* x,
                                                            uint32_t k, uint32_t rows, Wide* sums) {
  for (uint32_t r = 0; r < rows; ++r) sums[r] = 0.0F;
  for (uint32_t first = 0; first < k; first += kRun) {
    const uint32_t n = k - first < kRun ? k - first : kRun;
    alignas(64) float run[kRun];
    for (uint32_t i = 0; i < n; i += format.elements) {
      format.unpack(run + i, weights);
      weights += format.bytes;
    }
    multiply_run(run, n, x + first, k, rows, sums);
  }
}

}  // namespace
}  // namespace mtlqwen::twins

MTLQWEN_TWIN(linear_packed_whole) {
  using namespace mtlqwen::twins;
  const auto& args = dispatch.args<mtlqwen::LinearArgs>(3);
  const uint32_t rows = dispatch.args<mtlqwen::Pass>(4).rows;
  const bool accumulate = dispatch.constant<bool>(1);
  const PackedKernels& format = packed_kernels(dispatch.constant<uint32_t>(2));
  const uint64_t row_bytes = format.row_bytes(args.k);
  return for_each_group(dispatch, first, count, [&](uint32_t x, uint32_t) {
    const uint32_t from = x * kOutputs;
    const uint32_t to = args.n - from < kOutputs ? args.n : from + kOutputs;
    for (uint32_t o = from; o < to; ++o) {
      for (uint32_t first_row = 0; first_row < rows; first_row += kMostRows) {
        const uint32_t some = rows - first_row < kMostRows ? rows - first_row : kMostRows;
        Wide sums[kMostRows];
        multiply_output(format, dispatch.buffer<const uint8_t>(2) + o * row_bytes,
                        dispatch.buffer<const float>(1) + uint64_t{first_row} * args.k, args.k,
                        some, sums);
        for (uint32_t r = 0; r < some; ++r) {
          float& target = dispatch.buffer<float>(0)[uint64_t{first_row + r} * args.n + o];
          const float sum = fold(sums[r]);
          target = accumulate ? target + sum : sum;
        }
      }
    }
  });
}
