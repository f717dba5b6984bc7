// Linears over int16 rows, and the MLP's gate and up with what follows them. Two ways:
//
// row: one int16 row. The weights stream by once, in the order of memory, a row of them after the
// other; bound by memory.
//
// panel: any number of rows. Sixteen outputs are unpacked into a panel, which serves all rows.
//
// They are templates over a format, an object with
//   row_bytes(k)
//   multiply_row(sums, x, weights, k, n)          sums[o] = row x times row o of n rows of weights
//   multiply_panel(weights, k, x, n_rows, sums)   sums[r] = row r times 16 rows of weights
#pragma once
#include "math.h"
#include "panel.h"
#include "twin.h"

namespace mtlqwen::twins {
namespace {

constexpr uint32_t kRowOutputs = 64;    // of a threadgroup of linear_*_row
constexpr uint32_t kGroupOutputs = 32;  // of a threadgroup of the others
constexpr uint32_t kMostRows = 128;     // of a pass
constexpr uint32_t kAheadBytes = 8192;  // of a row: what memory sends while one is waited for

// Asks for the first `bytes` of the weights of a range of threadgroups, which nobody has yet.
MTLQWEN_INLINE void ask_first(const Dispatch& dispatch, uint64_t first, const uint8_t* weight,
                              uint64_t group_bytes, uint64_t bytes) {
  Ahead(weight + first % dispatch.groups_x() * group_bytes).advance(bytes);
}

// Adds n sums to as many outputs, or stores them.
MTLQWEN_INLINE void put(float* to, const float* sums, uint32_t n, bool accumulate) {
  for (uint32_t i = 0; i < n; ++i) to[i] = accumulate ? to[i] + sums[i] : sums[i];
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
__attribute__((min_vector_width(512))) int
linear_row(const Format& format, const Dispatch& dispatch, uint64_t first, uint64_t count) {
  const auto [out, in, weight, args, accumulate] = linear_arguments(dispatch);
  const uint64_t row_bytes = format.row_bytes(args.k);
  ask_first(dispatch, first, weight, kRowOutputs * row_bytes, kAheadBytes);
  return for_each_group(dispatch, first, count, [&](uint32_t x, uint32_t y) {
    const uint32_t from = x * kRowOutputs;
    const uint32_t n = args.n - from < kRowOutputs ? args.n - from : kRowOutputs;
    float sums[kRowOutputs];
    format.multiply_row(sums, in + y * int16_row_bytes(args.k), weight + from * row_bytes, args.k,
                        n);
    put(out + uint64_t{y} * args.n + from, sums, n, accumulate);
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
__attribute__((min_vector_width(512))) int
linear_panel(const Format& format, const Dispatch& dispatch, uint64_t first, uint64_t count) {
  const auto [out, in, weight, args, accumulate] = linear_arguments(dispatch);
  const auto& pass = dispatch.args<Pass>(4);
  const uint64_t row_bytes = format.row_bytes(args.k);
  ask_first(dispatch, first, weight, kGroupOutputs * row_bytes, kPanelOutputs * row_bytes);
  Wide sums[kMostRows];
  return for_each_group(dispatch, first, count, [&](uint32_t x, uint32_t y) {
    const uint64_t first_row = uint64_t{y} * kMostRows;
    const uint32_t rows = rows_of_group(pass, y);
    const uint8_t* from = in + first_row * int16_row_bytes(args.k);
    for (uint32_t r = 0; args.n < kPanelOutputs && r < rows; ++r) {
      float few[kPanelOutputs];
      format.multiply_row(few, from + r * int16_row_bytes(args.k), weight, args.k, args.n);
      put(out + (first_row + r) * args.n, few, args.n, accumulate);
    }
    for (uint32_t i = 0; args.n >= kPanelOutputs && i < kGroupOutputs; i += kPanelOutputs) {
      const uint32_t output = x * kGroupOutputs + i;
      if (output >= args.n) break;
      // The last panel of a ragged n begins with outputs of the one before.
      const uint32_t n = args.n - output < kPanelOutputs ? args.n - output : kPanelOutputs;
      const uint8_t* weights = weight + (output + n - kPanelOutputs) * row_bytes;
      format.multiply_panel(weights, args.k, from, rows, sums);
      for (uint32_t r = 0; r < rows; ++r) {
        store_last(out + (first_row + r) * args.n + output, n, sums[r], accumulate);
      }
    }
  });
}

template <class Gate, class Up>
__attribute__((min_vector_width(512))) int mlp_row(const Gate& gate_format, const Up& up_format,
                                                   const Dispatch& dispatch, uint64_t first,
                                                   uint64_t count) {
  const auto [out, in, gate, up, args] = mlp_arguments(dispatch);
  const uint64_t gate_bytes = gate_format.row_bytes(args.k);
  const uint64_t up_bytes = up_format.row_bytes(args.k);
  ask_first(dispatch, first, gate, kInt16Qblock * gate_bytes, kAheadBytes);
  ask_first(dispatch, first, up, kInt16Qblock * up_bytes, kAheadBytes);
  return for_each_group(dispatch, first, count, [&](uint32_t x, uint32_t y) {
    const uint8_t* row = in + y * int16_row_bytes(args.k);
    const uint64_t output = uint64_t{x} * kInt16Qblock;
    float sums[2][kInt16Qblock];
    gate_format.multiply_row(sums[0], row, gate + output * gate_bytes, args.k, kInt16Qblock);
    up_format.multiply_row(sums[1], row, up + output * up_bytes, args.k, kInt16Qblock);
    int16_quantise(out + y * int16_row_bytes(args.n), args.n, x,
                   silu(load(sums[0])) * load(sums[1]),
                   silu(load(sums[0] + kWide)) * load(sums[1] + kWide));
  });
}

template <class Gate, class Up>
__attribute__((min_vector_width(512))) int mlp_panel(const Gate& gate_format, const Up& up_format,
                                                     const Dispatch& dispatch, uint64_t first,
                                                     uint64_t count) {
  const auto [out, in, gate, up, args] = mlp_arguments(dispatch);
  const auto& pass = dispatch.args<Pass>(5);
  const uint64_t gate_bytes = gate_format.row_bytes(args.k);
  const uint64_t up_bytes = up_format.row_bytes(args.k);
  ask_first(dispatch, first, gate, kInt16Qblock * gate_bytes, kPanelOutputs * gate_bytes);
  ask_first(dispatch, first, up, kInt16Qblock * up_bytes, kPanelOutputs * up_bytes);
  Wide gates[2][kMostRows];
  Wide ups[2][kMostRows];
  return for_each_group(dispatch, first, count, [&](uint32_t x, uint32_t y) {
    const uint64_t first_row = uint64_t{y} * kMostRows;
    const uint32_t rows = rows_of_group(pass, y);
    const uint8_t* from = in + first_row * int16_row_bytes(args.k);
    for (uint32_t half = 0; half < 2; ++half) {
      const uint64_t output = uint64_t{x} * kInt16Qblock + half * kPanelOutputs;
      gate_format.multiply_panel(gate + output * gate_bytes, args.k, from, rows, gates[half]);
      up_format.multiply_panel(up + output * up_bytes, args.k, from, rows, ups[half]);
    }
    for (uint32_t r = 0; r < rows; ++r) {
      int16_quantise(out + (first_row + r) * int16_row_bytes(args.n), args.n, x,
                     silu(gates[0][r]) * ups[0][r], silu(gates[1][r]) * ups[1][r]);
    }
  });
}

}  // namespace
}  // namespace mtlqwen::twins
