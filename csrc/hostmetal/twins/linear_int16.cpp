// Linears over int16 rows, and the MLP's gate and up with what follows them. Two ways:
//
// row: one int16 row. The weights stream by once, in the order of memory, a row of them after the
// other; bound by memory.
//
// panel: any number of rows. Sixteen outputs are unpacked into a panel, which serves all rows.
#include "math.h"
#include "panel.h"
#include "q8_0.h"
#include "twin.h"

namespace mtlqwen::twins {
namespace {

constexpr uint32_t kRowOutputs = 64;    // of a threadgroup of linear_*_row
constexpr uint32_t kGroupOutputs = 32;  // of a threadgroup of the others
constexpr uint32_t kMostRows = 128;     // of a pass
constexpr uint32_t kAheadBytes = 8192;  // of a row: what memory sends while one is waited for

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

// Asks for the first `bytes` of the weights of a range of threadgroups, which nobody has yet.
MTLQWEN_INLINE void ask_first(const Dispatch& dispatch, uint64_t first, const uint8_t* weight,
                              uint64_t group_bytes, uint64_t bytes) {
  Ahead(weight + first % dispatch.groups_x() * group_bytes).advance(bytes);
}

// Outputs first .. last - 1 of one row.
template <class Format>
MTLQWEN_INLINE void multiply_row(float* out, const uint8_t* in, const uint8_t* weight, uint32_t k,
                                 uint32_t first, uint32_t last, bool accumulate) {
  const InputRow row(in, k);
  for (uint32_t o = first; o < last; ++o) {
    const float sum = row.template dot<Format>(weight + o * Format::row_bytes(k));
    out[o] = accumulate ? out[o] + sum : sum;
  }
}

struct LinearArguments {
  float* out;
  const uint8_t* in;
  const uint8_t* weight;
  LinearArgs args;
  bool accumulate;
};
MTLQWEN_INLINE LinearArguments linear_arguments(const Dispatch& dispatch) {
  return {dispatch.buffer<float>(0), dispatch.buffer<uint8_t>(1), dispatch.buffer<uint8_t>(2),
          dispatch.args<LinearArgs>(3), dispatch.constant<bool>(1)};
}

struct MlpArguments {
  uint8_t* out;
  const uint8_t* in;
  const uint8_t* gate;
  const uint8_t* up;
  LinearArgs args;
};
MTLQWEN_INLINE MlpArguments mlp_arguments(const Dispatch& dispatch) {
  return {dispatch.buffer<uint8_t>(0), dispatch.buffer<uint8_t>(1), dispatch.buffer<uint8_t>(2),
          dispatch.buffer<uint8_t>(3), dispatch.args<LinearArgs>(4)};
}

template <class Format>
__attribute__((min_vector_width(512))) int linear_row(const Dispatch& dispatch, uint64_t first,
                                                      uint64_t count) {
  const auto [out, in, weight, args, accumulate] = linear_arguments(dispatch);
  ask_first(dispatch, first, weight, kRowOutputs * Format::row_bytes(args.k), kAheadBytes);
  return for_each_group(dispatch, first, count, [&](uint32_t x, uint32_t y) {
    const uint32_t from = x * kRowOutputs;
    const uint32_t to = args.n - from < kRowOutputs ? args.n : from + kRowOutputs;
    multiply_row<Format>(out + uint64_t{y} * args.n, in + y * int16_row_bytes(args.k), weight,
                         args.k, from, to, accumulate);
  });
}

// Adds the last `n` of the sums to as many outputs, or stores them.
MTLQWEN_INLINE void store_last(float* to, uint32_t n, Wide sums, bool accumulate) {
  if (n == kWide) {
    store(to, accumulate ? load(to) + sums : sums);
    return;
  }
  for (uint32_t i = 0; i < n; ++i) {
    const float sum = sums[kWide - n + i];
    to[i] = accumulate ? to[i] + sum : sum;
  }
}

MTLQWEN_INLINE uint32_t rows_of_group(const Pass& pass, uint32_t y) {
  const uint32_t left = pass.rows - y * kMostRows;
  return left < kMostRows ? left : kMostRows;
}

template <class Format>
__attribute__((min_vector_width(512))) int linear_panel(const Dispatch& dispatch, uint64_t first,
                                                        uint64_t count) {
  const auto [out, in, weight, args, accumulate] = linear_arguments(dispatch);
  const auto& pass = dispatch.args<Pass>(4);
  const uint64_t row_bytes = Format::row_bytes(args.k);
  ask_first(dispatch, first, weight, kGroupOutputs * row_bytes, kPanelOutputs * row_bytes);
  Wide sums[kMostRows];
  return for_each_group(dispatch, first, count, [&](uint32_t x, uint32_t y) {
    const uint64_t first_row = uint64_t{y} * kMostRows;
    const uint32_t rows = rows_of_group(pass, y);
    const uint8_t* from = in + first_row * int16_row_bytes(args.k);
    for (uint32_t r = 0; args.n < kPanelOutputs && r < rows; ++r) {
      multiply_row<Format>(out + (first_row + r) * args.n, from + r * int16_row_bytes(args.k),
                           weight, args.k, 0, args.n, accumulate);
    }
    for (uint32_t i = 0; args.n >= kPanelOutputs && i < kGroupOutputs; i += kPanelOutputs) {
      const uint32_t output = x * kGroupOutputs + i;
      if (output >= args.n) break;
      // The last panel of a ragged n begins with outputs of the one before.
      const uint32_t n = args.n - output < kPanelOutputs ? args.n - output : kPanelOutputs;
      const uint8_t* weights = weight + (output + n - kPanelOutputs) * row_bytes;
      multiply_panel<Format>(weights, args.k, from, rows, sums);
      for (uint32_t r = 0; r < rows; ++r) {
        store_last(out + (first_row + r) * args.n + output, n, sums[r], accumulate);
      }
    }
  });
}

template <class Format>
__attribute__((min_vector_width(512))) int mlp_row(const Dispatch& dispatch, uint64_t first,
                                                   uint64_t count) {
  const auto [out, in, gate, up, args] = mlp_arguments(dispatch);
  const uint64_t row_bytes = Format::row_bytes(args.k);
  ask_first(dispatch, first, gate, kInt16Qblock * row_bytes, kAheadBytes);
  ask_first(dispatch, first, up, kInt16Qblock * row_bytes, kAheadBytes);
  return for_each_group(dispatch, first, count, [&](uint32_t x, uint32_t y) {
    const InputRow row(in + y * int16_row_bytes(args.k), args.k);
    float sums[2][kInt16Qblock];
    for (uint32_t i = 0; i < kInt16Qblock; ++i) {
      const uint64_t offset = (uint64_t{x} * kInt16Qblock + i) * row_bytes;
      sums[0][i] = row.template dot<Format>(gate + offset);
      sums[1][i] = row.template dot<Format>(up + offset);
    }
    int16_quantise(out + y * int16_row_bytes(args.n), args.n, x,
                   silu(load(sums[0])) * load(sums[1]),
                   silu(load(sums[0] + kWide)) * load(sums[1] + kWide));
  });
}

template <class Format>
__attribute__((min_vector_width(512))) int mlp_panel(const Dispatch& dispatch, uint64_t first,
                                                     uint64_t count) {
  const auto [out, in, gate, up, args] = mlp_arguments(dispatch);
  const auto& pass = dispatch.args<Pass>(5);
  const uint64_t row_bytes = Format::row_bytes(args.k);
  ask_first(dispatch, first, gate, kInt16Qblock * row_bytes, kPanelOutputs * row_bytes);
  ask_first(dispatch, first, up, kInt16Qblock * row_bytes, kPanelOutputs * row_bytes);
  Wide gates[2][kMostRows];
  Wide ups[2][kMostRows];
  return for_each_group(dispatch, first, count, [&](uint32_t x, uint32_t y) {
    const uint64_t first_row = uint64_t{y} * kMostRows;
    const uint32_t rows = rows_of_group(pass, y);
    const uint8_t* from = in + first_row * int16_row_bytes(args.k);
    for (uint32_t half = 0; half < 2; ++half) {
      const uint64_t offset = (uint64_t{x} * kInt16Qblock + half * kPanelOutputs) * row_bytes;
      multiply_panel<Format>(gate + offset, args.k, from, rows, gates[half]);
      multiply_panel<Format>(up + offset, args.k, from, rows, ups[half]);
    }
    for (uint32_t r = 0; r < rows; ++r) {
      int16_quantise(out + (first_row + r) * int16_row_bytes(args.n), args.n, x,
                     silu(gates[0][r]) * ups[0][r], silu(gates[1][r]) * ups[1][r]);
    }
  });
}

}  // namespace
}  // namespace mtlqwen::twins

using mtlqwen::twins::FormatQ8_0;

MTLQWEN_TWIN(linear_q8_0_int16_row) {
  return mtlqwen::twins::linear_row<FormatQ8_0>(dispatch, first, count);
}
MTLQWEN_TWIN(linear_q8_0_int16_panel) {
  return mtlqwen::twins::linear_panel<FormatQ8_0>(dispatch, first, count);
}
MTLQWEN_TWIN(mlp_q8_0_int16_row) {
  return mtlqwen::twins::mlp_row<FormatQ8_0>(dispatch, first, count);
}
MTLQWEN_TWIN(mlp_q8_0_int16_panel) {
  return mtlqwen::twins::mlp_panel<FormatQ8_0>(dispatch, first, count);
}
