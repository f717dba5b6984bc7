// Linears over int8 rows, and the MLP's gate and up with what follows them. Two ways:
//
// row: one int8 row. The weights stream by once, in the order of memory, a row of them after the
// other, two qblocks at a time; bound by memory.
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
constexpr uint32_t kPreparedPairs = 128;

typedef uint8_t LooseBytes __attribute__((ext_vector_type(64), aligned(1)));

// Two qblocks of an int8 row, ready to be multiplied.
struct Pair {
  WideBytes x;
  WideInts start;
  Wide scales;
};

MTLQWEN_INLINE Pair prepare(WideBytes x, float low_scale, float high_scale) {
  WideInts start = 0;
  if (kBias != 0) start -= multiply(start, to_weights(WideBytes(kBias)), to_activations(x));
  return {x, start, halves_of(low_scale, high_scale)};
}

// An int8 row that many rows of weights are multiplied with.
class PreparedRow {
 public:
  MTLQWEN_INLINE PreparedRow(const uint8_t* row, uint32_t k)
      : quants_(row), scales_(int8_scales(row, k)), qblocks_(k / kInt8Qblock) {
    prepared_ = qblocks_ / 2 < kPreparedPairs ? qblocks_ / 2 : kPreparedPairs;
    for (uint32_t p = 0; p < prepared_; ++p) pairs_[p] = load_pair(p);
  }

  // Two totals: one would wait for its last addition.
  template <class Format>
  MTLQWEN_INLINE float dot(const uint8_t* weights) const {
    const uint32_t pairs = qblocks_ / 2;
    Wide totals[2] = {};
    uint32_t p = 0;
    for (; p + 1 < prepared_; p += 2) {
      totals[0] = add<Format>(totals[0], weights, p, pairs_[p]);
      totals[1] = add<Format>(totals[1], weights, p + 1, pairs_[p + 1]);
    }
    for (; p < pairs; ++p) totals[p % 2] = add<Format>(totals[p % 2], weights, p, load_pair(p));
    if (qblocks_ % 2 != 0) {
      WideBytes bytes;
      Wide scales;
      Format::single(weights + uint64_t{qblocks_ - 1} * Format::kQblockBytes, bytes, scales);
      totals[0] = multiply_pair(totals[0], bytes, scales, last());
    }
    return fold(totals[0] + totals[1]);
  }

 private:
  template <class Format>
  static MTLQWEN_INLINE Wide add(Wide total, const uint8_t* weights, uint32_t p, const Pair& pair) {
    const uint8_t* qblocks = weights + uint64_t{p} * 2 * Format::kQblockBytes;
    __builtin_prefetch(qblocks + kAheadBytes);
    WideBytes bytes;
    Wide scales;
    Format::pair(qblocks, bytes, scales);
    return multiply_pair(total, bytes, scales, pair);
  }
  static MTLQWEN_INLINE Wide multiply_pair(Wide total, WideBytes weights, Wide scales,
                                           const Pair& pair) {
    const WideInts products = multiply(pair.start, to_weights(weights), to_activations(pair.x));
    return multiply_add(__builtin_convertvector(products, Wide), scales * pair.scales, total);
  }
  [[nodiscard]] MTLQWEN_INLINE Pair load_pair(uint32_t p) const {
    const auto* x = reinterpret_cast<const LooseBytes*>(quants_ + uint64_t{p} * 2 * kInt8Qblock);
    return prepare(*x, scales_[2 * p], scales_[2 * p + 1]);
  }
  [[nodiscard]] MTLQWEN_INLINE Pair last() const {
    const uint32_t b = qblocks_ - 1;
    const auto* x = reinterpret_cast<const LooseHalfBytes*>(quants_ + uint64_t{b} * kInt8Qblock);
    return prepare(join(*x, LooseHalfBytes(0)), scales_[b], 0.0F);
  }

  const uint8_t* quants_;
  const float* scales_;
  uint32_t qblocks_;
  uint32_t prepared_;
  Pair pairs_[kPreparedPairs];
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
  const PreparedRow row(in, k);
  for (uint32_t o = first; o < last; ++o) {
    const float sum = row.template dot<Format>(weight + o * Format::row_bytes(k));
    out[o] = accumulate ? out[o] + sum : sum;
  }
}

template <class Format>
__attribute__((min_vector_width(512))) int linear_row(const Dispatch& dispatch, uint64_t first,
                                                      uint64_t count) {
  auto* out = dispatch.buffer<float>(0);
  const auto* in = dispatch.buffer<uint8_t>(1);
  const auto* weight = dispatch.buffer<uint8_t>(2);
  const auto& args = dispatch.args<LinearArgs>(3);
  const bool accumulate = dispatch.constant<bool>(1);
  ask_first(dispatch, first, weight, kRowOutputs * Format::row_bytes(args.k), kAheadBytes);
  return for_each_group(dispatch, first, count, [&](uint32_t x, uint32_t y) {
    const uint32_t from = x * kRowOutputs;
    const uint32_t to = args.n - from < kRowOutputs ? args.n : from + kRowOutputs;
    multiply_row<Format>(out + uint64_t{y} * args.n, in + y * int8_row_bytes(args.k), weight,
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
  auto* out = dispatch.buffer<float>(0);
  const auto* in = dispatch.buffer<uint8_t>(1);
  const auto* weight = dispatch.buffer<uint8_t>(2);
  const auto& args = dispatch.args<LinearArgs>(3);
  const auto& pass = dispatch.args<Pass>(4);
  const bool accumulate = dispatch.constant<bool>(1);
  const uint64_t row_bytes = Format::row_bytes(args.k);
  ask_first(dispatch, first, weight, kGroupOutputs * row_bytes, kPanelOutputs * row_bytes);
  Wide sums[kMostRows];
  return for_each_group(dispatch, first, count, [&](uint32_t x, uint32_t y) {
    const uint64_t first_row = uint64_t{y} * kMostRows;
    const uint32_t rows = rows_of_group(pass, y);
    const uint8_t* from = in + first_row * int8_row_bytes(args.k);
    for (uint32_t r = 0; args.n < kPanelOutputs && r < rows; ++r) {
      multiply_row<Format>(out + (first_row + r) * args.n, from + r * int8_row_bytes(args.k),
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
  auto* out = dispatch.buffer<uint8_t>(0);
  const auto* in = dispatch.buffer<uint8_t>(1);
  const auto* gate = dispatch.buffer<uint8_t>(2);
  const auto* up = dispatch.buffer<uint8_t>(3);
  const auto& args = dispatch.args<LinearArgs>(4);
  const uint64_t row_bytes = Format::row_bytes(args.k);
  ask_first(dispatch, first, gate, kInt8Qblock * row_bytes, kAheadBytes);
  ask_first(dispatch, first, up, kInt8Qblock * row_bytes, kAheadBytes);
  return for_each_group(dispatch, first, count, [&](uint32_t x, uint32_t y) {
    const PreparedRow row(in + y * int8_row_bytes(args.k), args.k);
    float sums[2][kInt8Qblock];
    for (uint32_t i = 0; i < kInt8Qblock; ++i) {
      const uint64_t offset = (uint64_t{x} * kInt8Qblock + i) * row_bytes;
      sums[0][i] = row.template dot<Format>(gate + offset);
      sums[1][i] = row.template dot<Format>(up + offset);
    }
    int8_quantise(out + y * int8_row_bytes(args.n), args.n, x, silu(load(sums[0])) * load(sums[1]),
                  silu(load(sums[0] + kWide)) * load(sums[1] + kWide));
  });
}

template <class Format>
__attribute__((min_vector_width(512))) int mlp_panel(const Dispatch& dispatch, uint64_t first,
                                                     uint64_t count) {
  auto* out = dispatch.buffer<uint8_t>(0);
  const auto* in = dispatch.buffer<uint8_t>(1);
  const auto* gate = dispatch.buffer<uint8_t>(2);
  const auto* up = dispatch.buffer<uint8_t>(3);
  const auto& args = dispatch.args<LinearArgs>(4);
  const auto& pass = dispatch.args<Pass>(5);
  const uint64_t row_bytes = Format::row_bytes(args.k);
  ask_first(dispatch, first, gate, kInt8Qblock * row_bytes, kPanelOutputs * row_bytes);
  ask_first(dispatch, first, up, kInt8Qblock * row_bytes, kPanelOutputs * row_bytes);
  Wide gates[2][kMostRows];
  Wide ups[2][kMostRows];
  return for_each_group(dispatch, first, count, [&](uint32_t x, uint32_t y) {
    const uint64_t first_row = uint64_t{y} * kMostRows;
    const uint32_t rows = rows_of_group(pass, y);
    const uint8_t* from = in + first_row * int8_row_bytes(args.k);
    for (uint32_t half = 0; half < 2; ++half) {
      const uint64_t offset = (uint64_t{x} * kInt8Qblock + half * kPanelOutputs) * row_bytes;
      multiply_panel<Format>(gate + offset, args.k, from, rows, gates[half]);
      multiply_panel<Format>(up + offset, args.k, from, rows, ups[half]);
    }
    for (uint32_t r = 0; r < rows; ++r) {
      int8_quantise(out + (first_row + r) * int8_row_bytes(args.n), args.n, x,
                    silu(gates[0][r]) * ups[0][r], silu(gates[1][r]) * ups[1][r]);
    }
  });
}

}  // namespace
}  // namespace mtlqwen::twins

using mtlqwen::twins::FormatQ8_0;

MTLQWEN_TWIN(linear_q8_0_int8_row) {
  return mtlqwen::twins::linear_row<FormatQ8_0>(dispatch, first, count);
}
MTLQWEN_TWIN(linear_q8_0_int8_panel) {
  return mtlqwen::twins::linear_panel<FormatQ8_0>(dispatch, first, count);
}
MTLQWEN_TWIN(mlp_q8_0_int8_row) {
  return mtlqwen::twins::mlp_row<FormatQ8_0>(dispatch, first, count);
}
MTLQWEN_TWIN(mlp_q8_0_int8_panel) {
  return mtlqwen::twins::mlp_panel<FormatQ8_0>(dispatch, first, count);
}
