// A panel: the weights of 16 outputs and a run of k, widened to int16 in the order of the products.
// It is unpacked once and serves all rows of the pass.
//
// Functions that are not inlined are static: a file is compiled at two levels of dot.h into one
// library.
#pragma once
#include "dot.h"
#include "int16.h"

namespace mtlqwen::twins {

constexpr uint32_t kPanelOutputs = kWide;
constexpr uint32_t kPanelQblocks = 16;  // 17 KiB with the scales: half of a level 1 cache
constexpr uint32_t kSteps = 16;         // of two elements, in a qblock
constexpr uint32_t kNearBytes = 128;  // from level 2 to 1; sixteen rows are too many to be foreseen

typedef int8_t Bytes __attribute__((ext_vector_type(64), aligned(64)));
typedef int8_t LooseHalfBytes __attribute__((ext_vector_type(32), aligned(1)));

// Asks for the cache lines of weights to come, into level 2, a few at a time: bursts stall the
// loads behind them.
class Ahead {
 public:
  explicit Ahead(const uint8_t* at) : line_(at), end_(at) {}
  MTLQWEN_INLINE void advance(uint64_t bytes) {
    end_ += bytes;
    for (; line_ < end_; line_ += 64) __builtin_prefetch(line_, 0, 2);
  }

 private:
  const uint8_t* line_;
  const uint8_t* end_;
};

// The bytes of a qblock of 16 outputs: fours[i] has elements 4 i .. 4 i + 3 of each, of which the
// second and third have changed places. Widened, the low bytes are then elements 0 and 1, the high
// ones 2 and 3.
class Column {
 public:
  // quads[i] holds the 32 elements of outputs i and i + 4, quads[4 + i] those of i + 8 and i + 12,
  // from interleave().
  MTLQWEN_INLINE explicit Column(const WideInts* quads) {
    WideInts parts[2][4];
    for (uint32_t h = 0; h < 2; ++h) {
      const WideInts* q = quads + 4 * h;
      const WideInts low01 = low_pairs(q[0], q[1]);
      const WideInts high01 = high_pairs(q[0], q[1]);
      const WideInts low23 = low_pairs(q[2], q[3]);
      const WideInts high23 = high_pairs(q[2], q[3]);
      parts[h][0] = low_fours(low01, low23);
      parts[h][1] = high_fours(low01, low23);
      parts[h][2] = low_fours(high01, high23);
      parts[h][3] = high_fours(high01, high23);
    }
    for (uint32_t i = 0; i < 4; ++i) {
      fours_[i] = (Pairs)__builtin_shufflevector(parts[0][i], parts[1][i], 0, 1, 2, 3, 8, 9, 10, 11,
                                                 16, 17, 18, 19, 24, 25, 26, 27);
      fours_[4 + i] = (Pairs)__builtin_shufflevector(parts[0][i], parts[1][i], 4, 5, 6, 7, 12, 13,
                                                     14, 15, 20, 21, 22, 23, 28, 29, 30, 31);
    }
  }

  // Elements 2 step and 2 step + 1 of each output.
  [[nodiscard]] MTLQWEN_INLINE Pairs pairs(uint32_t step) const {
    return step % 2 == 0 ? (fours_[step / 2] << 8) >> 8 : fours_[step / 2] >> 8;
  }

  // Elements 0, 2, 1, 3 of each four.
  static MTLQWEN_INLINE Bytes interleave(LooseHalfBytes low, LooseHalfBytes high) {
    const Bytes all = __builtin_shufflevector(
        low, high, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22,
        23, 24, 25, 26, 27, 28, 29, 30, 31, 32, 33, 34, 35, 36, 37, 38, 39, 40, 41, 42, 43, 44, 45,
        46, 47, 48, 49, 50, 51, 52, 53, 54, 55, 56, 57, 58, 59, 60, 61, 62, 63);
    return __builtin_shufflevector(all, all, 0, 2, 1, 3, 4, 6, 5, 7, 8, 10, 9, 11, 12, 14, 13, 15,
                                   16, 18, 17, 19, 20, 22, 21, 23, 24, 26, 25, 27, 28, 30, 29, 31,
                                   32, 34, 33, 35, 36, 38, 37, 39, 40, 42, 41, 43, 44, 46, 45, 47,
                                   48, 50, 49, 51, 52, 54, 53, 55, 56, 58, 57, 59, 60, 62, 61, 63);
  }

 private:
  static MTLQWEN_INLINE WideInts low_pairs(WideInts a, WideInts b) {
    return __builtin_shufflevector(a, b, 0, 16, 1, 17, 4, 20, 5, 21, 8, 24, 9, 25, 12, 28, 13, 29);
  }
  static MTLQWEN_INLINE WideInts high_pairs(WideInts a, WideInts b) {
    return __builtin_shufflevector(a, b, 2, 18, 3, 19, 6, 22, 7, 23, 10, 26, 11, 27, 14, 30, 15,
                                   31);
  }
  static MTLQWEN_INLINE WideInts low_fours(WideInts a, WideInts b) {
    return __builtin_shufflevector(a, b, 0, 1, 16, 17, 4, 5, 20, 21, 8, 9, 24, 25, 12, 13, 28, 29);
  }
  static MTLQWEN_INLINE WideInts high_fours(WideInts a, WideInts b) {
    return __builtin_shufflevector(a, b, 2, 3, 18, 19, 6, 7, 22, 23, 10, 11, 26, 27, 14, 15, 30,
                                   31);
  }

  Pairs fours_[8];
};

// A qblock has one scale or two, of its halves; one offset or two, or none.
struct Panel {
  Pairs weights[kPanelQblocks][kSteps];  // two elements of each output
  Wide scales[kPanelQblocks][2];
  Wide offsets[kPanelQblocks][2];
};

// The rows of a pass, or some of them, from the element of k where the panel begins.
struct RowsPart {
  const uint8_t* first;  // int16 row
  uint32_t k;            // of a whole row
  uint32_t qblock;       // where the panel begins
};

// The sums of a row's elements that an offset is multiplied with.
template <uint32_t kOffsets>
MTLQWEN_INLINE void load_sums(float (&to)[kPanelQblocks][2], const float* from, uint32_t qblocks) {
  for (uint32_t b = 0; b < qblocks; ++b) {
    to[b][0] = kOffsets == 1 ? from[2 * b] + from[2 * b + 1] : from[2 * b];
    to[b][1] = from[2 * b + 1];
  }
}

// sums[r] += the products of row r with the panel. A row's chain of additions does not depend on
// kRows.
template <uint32_t kRows, uint32_t kScales, uint32_t kOffsets>
__attribute__((noinline, min_vector_width(512))) static void
multiply_tile(const Panel& panel, uint32_t qblocks, RowsPart rows, Wide* sums, Ahead& ahead,
              uint64_t ahead_bytes) {
  const int16_t* quants[kRows];
  float scales[kRows][kPanelQblocks];
  float row_sums[kOffsets > 0 ? kRows : 1][kPanelQblocks][2];
  Wide totals[kRows];
  for (uint32_t r = 0; r < kRows; ++r) {
    const uint8_t* row = rows.first + r * int16_row_bytes(rows.k);
    quants[r] = int16_quants(row) + uint64_t{rows.qblock} * kInt16Qblock;
    const float* from = int16_scales(row, rows.k) + rows.qblock;
    for (uint32_t b = 0; b < qblocks; ++b) scales[r][b] = from[b];
    if constexpr (kOffsets > 0) {
      load_sums<kOffsets>(row_sums[r], int16_sums(row, rows.k) + uint64_t{2} * rows.qblock,
                          qblocks);
    }
    totals[r] = sums[r];
  }
  for (uint32_t b = 0; b < qblocks; ++b) {
    ahead.advance(ahead_bytes);
#pragma unroll
    for (uint32_t part = 0; part < kScales; ++part) {
      constexpr uint32_t kPartSteps = kSteps / kScales;
      WideInts products[kRows];
#pragma unroll
      for (uint32_t r = 0; r < kRows; ++r) products[r] = 0;
#pragma unroll
      for (uint32_t s = part * kPartSteps; s < (part + 1) * kPartSteps; ++s) {
        const Pairs w = panel.weights[b][s];
#pragma unroll
        for (uint32_t r = 0; r < kRows; ++r) {
          products[r] = multiply(products[r], w, broadcast2(quants[r] + b * kInt16Qblock + s * 2));
        }
      }
#pragma unroll
      for (uint32_t r = 0; r < kRows; ++r) {
        const Wide product = __builtin_convertvector(products[r], Wide) * panel.scales[b][part];
        totals[r] = multiply_add(product, Wide(scales[r][b]), totals[r]);
      }
    }
#pragma unroll
    for (uint32_t part = 0; part < kOffsets; ++part) {
#pragma unroll
      for (uint32_t r = 0; r < kRows; ++r) {
        totals[r] = multiply_add(panel.offsets[b][part], Wide(row_sums[r][b][part]), totals[r]);
      }
    }
  }
  for (uint32_t r = 0; r < kRows; ++r) sums[r] = totals[r];
}

// Asks for byte `offset` of each of 16 rows, or for where it goes on in the 16 rows behind them.
MTLQWEN_INLINE void ask_near(const uint8_t* weights, uint64_t offset, uint64_t row_bytes) {
  if (offset >= row_bytes) offset += (kPanelOutputs - 1) * row_bytes;
#pragma unroll
  for (uint32_t i = 0; i < kPanelOutputs; ++i) {
    __builtin_prefetch(weights + offset + i * row_bytes);
  }
}

// Row r of rows that are `stride` bytes apart. Addresses of a base and 0 to 3 strides need few
// registers; eight of any kind do not fit.
MTLQWEN_INLINE const uint8_t* nth_row(const uint8_t* first, uint64_t stride, uint32_t r) {
  const uint8_t* base = first + r / 4 * 4 * stride;
  return base + r % 4 * stride;
}

// The products of kRows rows with the 16 outputs whose weights start at `weights`, for few rows:
// what is unpacked is used at once and not stored. The same additions as in multiply_tile(), but for
// those of integers.
template <uint32_t kRows, class Format>
__attribute__((noinline, min_vector_width(512))) static void
multiply_column(const uint8_t* weights, RowsPart rows, Wide* sums) {
  const uint64_t row_bytes = Format::row_bytes(rows.k);
  const uint64_t stride = int16_row_bytes(rows.k);
  const uint8_t* quants = rows.first;
  const auto* scales = reinterpret_cast<const uint8_t*>(int16_scales(rows.first, rows.k));
  Ahead ahead(weights + kPanelOutputs * row_bytes);
  Wide totals[kRows] = {};
  for (uint32_t b = 0; b < rows.k / kInt16Qblock; ++b) {
    const uint8_t* qblock = weights + b * Format::kQblockBytes;
    ahead.advance(kPanelOutputs * Format::kQblockBytes);
    // Two qblocks are about a cache line.
    if (b % 2 == 0) ask_near(weights, b * Format::kQblockBytes + kNearBytes, row_bytes);
    const Column column = Format::column(qblock, row_bytes);
    WideInts products[kChains<kRows>][kRows] = {};
#pragma unroll
    for (uint32_t s = 0; s < kSteps; ++s) {
      const Pairs w = column.pairs(s);
#pragma unroll
      for (uint32_t r = 0; r < kRows; ++r) {
        WideInts& product = products[s % kChains<kRows>][r];
        product = multiply(product, w, broadcast2(nth_row(quants, stride, r) + s * 4));
      }
    }
    const Wide weight_scales = Format::scales(qblock, row_bytes);
#pragma unroll
    for (uint32_t r = 0; r < kRows; ++r) {
      WideInts integers = products[0][r];
#pragma unroll
      for (uint32_t c = 1; c < kChains<kRows>; ++c) integers += products[c][r];
      const Wide product = __builtin_convertvector(integers, Wide) * weight_scales;
      const Wide scale = *reinterpret_cast<const float*>(nth_row(scales, stride, r));
      totals[r] = multiply_add(product, scale, totals[r]);
    }
    quants += kInt16Qblock * sizeof(int16_t);
    scales += sizeof(float);
  }
  for (uint32_t r = 0; r < kRows; ++r) sums[r] = totals[r];
}

// Both for any number of rows up to kMost.
template <uint32_t kMost, uint32_t kScales, uint32_t kOffsets>
MTLQWEN_INLINE void multiply_rows(uint32_t n_rows, const Panel& panel, uint32_t qblocks,
                                  RowsPart rows, Wide* sums, Ahead& ahead, uint64_t ahead_bytes) {
  if (n_rows == kMost) {
    multiply_tile<kMost, kScales, kOffsets>(panel, qblocks, rows, sums, ahead, ahead_bytes);
  } else if constexpr (kMost > 1) {
    multiply_rows<kMost - 1, kScales, kOffsets>(n_rows, panel, qblocks, rows, sums, ahead,
                                                ahead_bytes);
  }
}
template <uint32_t kMost, class Format>
MTLQWEN_INLINE void multiply_few(uint32_t n_rows, const uint8_t* weights, RowsPart rows,
                                 Wide* sums) {
  if (n_rows == kMost) {
    multiply_column<kMost, Format>(weights, rows, sums);
  } else if constexpr (kMost > 1) {
    multiply_few<kMost - 1, Format>(n_rows, weights, rows, sums);
  }
}

// sums[r] = the products of n_rows rows with 16 outputs, a panel at a time. unpack(panel, b, count,
// ahead, ahead_bytes) unpacks `count` qblocks from b on, and has `ahead` advance with each of them.
template <uint32_t kScales, uint32_t kOffsets, class Unpack>
MTLQWEN_INLINE void multiply_panels(const Unpack& unpack, const uint8_t* weights,
                                    uint64_t row_bytes, uint32_t k, const uint8_t* in,
                                    uint32_t n_rows, Wide* sums) {
  Panel panel;
  for (uint32_t r = 0; r < n_rows; ++r) sums[r] = 0.0F;

  // The next panel's bytes are asked for while this one is worked on, in step with the work.
  const uint32_t qblocks = k / kInt16Qblock;
  const uint32_t tiles = (n_rows + kTileRows - 1) / kTileRows;
  const uint64_t qblock_bytes = kPanelOutputs * row_bytes / qblocks;
  const uint64_t unpack_bytes = qblock_bytes * kUnpackRows / (kUnpackRows + n_rows);
  const uint64_t tile_bytes = (qblock_bytes - unpack_bytes) / tiles;
  Ahead ahead(weights + kPanelOutputs * row_bytes);
  for (uint32_t b = 0; b < qblocks; b += kPanelQblocks) {
    const uint32_t count = qblocks - b < kPanelQblocks ? qblocks - b : kPanelQblocks;
    unpack(panel, b, count, ahead, unpack_bytes);
    for (uint32_t t = 0; t < tiles; ++t) {
      const uint32_t from = n_rows * t / tiles;
      const uint32_t to = n_rows * (t + 1) / tiles;
      const RowsPart rows{in + from * int16_row_bytes(k), k, b};
      multiply_rows<kTileRows, kScales, kOffsets>(to - from, panel, count, rows, sums + from, ahead,
                                                  tile_bytes);
    }
  }
}

// The same for the 16 outputs whose weights start at `weights`, in a format of q8_0.h.
template <class Format>
__attribute__((noinline, min_vector_width(512))) static void
multiply_panel(const uint8_t* weights, uint32_t k, const uint8_t* in, uint32_t n_rows, Wide* sums) {
  if (n_rows <= kColumnRows) {
    multiply_few<kColumnRows, Format>(n_rows, weights, RowsPart{in, k, 0}, sums);
    return;
  }
  const uint64_t row_bytes = Format::row_bytes(k);
  const auto unpack =
      [&](Panel& panel, uint32_t b, uint32_t count, Ahead& ahead, uint64_t ahead_bytes)
          __attribute__((always_inline, min_vector_width(512))) {
            for (uint32_t i = 0; i < count; ++i) {
              ahead.advance(ahead_bytes);
              const uint8_t* qblock = weights + uint64_t{b + i} * Format::kQblockBytes;
              const Column column = Format::column(qblock, row_bytes);
#pragma unroll
              for (uint32_t s = 0; s < kSteps; ++s) panel.weights[i][s] = column.pairs(s);
              panel.scales[i][0] = Format::scales(qblock, row_bytes);
            }
          };
  multiply_panels<1, 0>(unpack, weights, row_bytes, k, in, n_rows, sums);
}

}  // namespace mtlqwen::twins
