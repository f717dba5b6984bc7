// GGUF Q8_0 for the int16 kernels: a qblock is a half scale and 32 int8, 34 bytes, 2-byte aligned.
// A format is a struct like this one: weights() and scale() unpack a qblock of a row, column() and
// scales() those of 16 rows.
#pragma once
#include "panel.h"

namespace mtlqwen::twins {

typedef uint64_t Words __attribute__((ext_vector_type(4)));
typedef uint16_t WideShorts __attribute__((ext_vector_type(16)));
typedef _Float16 WideHalves __attribute__((ext_vector_type(16)));

struct FormatQ8_0 {
  static constexpr uint32_t kQblockBytes = 34;

  static uint64_t row_bytes(uint32_t k) { return uint64_t{k / kInt16Qblock} * kQblockBytes; }

  // One qblock of a row.
  static MTLQWEN_INLINE Pairs weights(const uint8_t* qblock) {
    return __builtin_convertvector(quants(qblock), Pairs);
  }
  // Its scale in every lane. A half on its own would be inserted into a register in use.
  static MTLQWEN_INLINE Wide scale(const uint8_t* qblock) {
    const auto halves = (WideHalves)WideShorts(static_cast<uint16_t>(bits(qblock)));
    return __builtin_convertvector(halves, Wide);
  }

  // The qblocks of 16 rows, `row_bytes` apart, and their scales.
  static MTLQWEN_INLINE Column column(const uint8_t* qblock, uint64_t row_bytes) {
    WideInts quads[8];
#pragma unroll
    for (uint32_t i = 0; i < 8; ++i) {
      const uint8_t* low = qblock + (i / 4 * 8 + i % 4) * row_bytes;
      quads[i] = (WideInts)Column::interleave(quants(low), quants(low + 4 * row_bytes));
    }
    return Column(quads);
  }
  static MTLQWEN_INLINE Wide scales(const uint8_t* qblock, uint64_t row_bytes) {
    uint64_t halves[kPanelOutputs / 4];
#pragma unroll
    for (uint32_t i = 0; i < kPanelOutputs / 4; ++i) {
      const uint8_t* four = qblock + 4 * i * row_bytes;
      halves[i] = bits(four) | bits(four + row_bytes) << 16 | bits(four + 2 * row_bytes) << 32 |
                  bits(four + 3 * row_bytes) << 48;
    }
    const Words words = {halves[0], halves[1], halves[2], halves[3]};
    return __builtin_convertvector((WideHalves)words, Wide);
  }

 private:
  static MTLQWEN_INLINE uint64_t bits(const uint8_t* qblock) {
    uint16_t value;
    __builtin_memcpy(&value, qblock, sizeof value);
    return value;
  }
  static MTLQWEN_INLINE LooseHalfBytes quants(const uint8_t* qblock) {
    return *reinterpret_cast<const LooseHalfBytes*>(qblock + 2);
  }
};

}  // namespace mtlqwen::twins
