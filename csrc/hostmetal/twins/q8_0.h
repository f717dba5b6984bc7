// GGUF Q8_0 for the int16 kernels: a qblock is a half scale and 32 int8, 34 bytes, 2-byte aligned.
// A format is a struct like this one: weights() and scale() unpack a qblock of a row, unpack() a panel.
#pragma once
#include "panel.h"

namespace mtlqwen::twins {

struct FormatQ8_0 {
  static constexpr uint32_t kQblockBytes = 34;

  static uint64_t row_bytes(uint32_t k) { return uint64_t{k / kInt16Qblock} * kQblockBytes; }

  // One qblock of a row.
  static MTLQWEN_INLINE Pairs weights(const uint8_t* qblock) {
    return __builtin_convertvector(quants(qblock), Pairs);
  }
  static MTLQWEN_INLINE float scale(const uint8_t* qblock) {
    _Float16 value;
    __builtin_memcpy(&value, qblock, sizeof value);
    return static_cast<float>(value);
  }

  // Qblocks first .. first + count - 1 of 16 rows, of which the first starts at `rows`.
  static MTLQWEN_INLINE void unpack(Panel& panel, const uint8_t* rows, uint64_t row_bytes,
                                    uint32_t first, uint32_t count, Ahead& ahead,
                                    uint64_t ahead_bytes) {
    uint64_t halves[kPanelQblocks][kPanelOutputs / 4];
    for (uint32_t b = 0; b < count; ++b) {
      ahead.advance(ahead_bytes);
      const uint8_t* qblock = rows + uint64_t{first + b} * kQblockBytes;
      WideInts quads[8];
#pragma unroll
      for (uint32_t i = 0; i < 8; ++i) {
        const uint8_t* low = qblock + (i / 4 * 8 + i % 4) * row_bytes;
        quads[i] = (WideInts)Panel::interleave(quants(low), quants(low + 4 * row_bytes));
      }
      panel.store_transposed(b, quads);
      // Four halves a store: single ones would fill the store queue.
#pragma unroll
      for (uint32_t i = 0; i < kPanelOutputs / 4; ++i) {
        const uint8_t* four = qblock + 4 * i * row_bytes;
        halves[b][i] = bits(four) | bits(four + row_bytes) << 16 |
                       bits(four + 2 * row_bytes) << 32 | bits(four + 3 * row_bytes) << 48;
      }
    }
    for (uint32_t b = 0; b < count; ++b) {
      panel.scales[b] = load(reinterpret_cast<const _Float16*>(halves[b]));
    }
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
