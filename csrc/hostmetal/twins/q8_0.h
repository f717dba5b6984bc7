// GGUF Q8_0 for the int8 kernels: a qblock is a half scale and 32 int8, 34 bytes, 2-byte aligned.
// A format is a struct like this one: pair() and single() unpack a row, unpack() 16 rows.
#pragma once
#include "panel.h"

namespace mtlqwen::twins {

struct FormatQ8_0 {
  static constexpr uint32_t kQblockBytes = 34;

  static uint64_t row_bytes(uint32_t k) { return uint64_t{k / kInt8Qblock} * kQblockBytes; }

  // Two neighbouring qblocks: their bytes, and their scales, each in half of the lanes.
  static MTLQWEN_INLINE void pair(const uint8_t* qblock, WideBytes& bytes, Wide& scales) {
    bytes = biased(quants(qblock), quants(qblock + kQblockBytes));
    scales = halves_of(scale(qblock), scale(qblock + kQblockBytes));
  }
  // One qblock, with zeros in the place of a second.
  static MTLQWEN_INLINE void single(const uint8_t* qblock, WideBytes& bytes, Wide& scales) {
    bytes = biased(quants(qblock), LooseHalfBytes(0));
    scales = halves_of(scale(qblock), 0.0F);
  }

  // Qblocks first .. first + count - 1 of the rows that start at `rows`.
  static MTLQWEN_INLINE void unpack(Panel& panel, const uint8_t* const* rows, uint32_t first,
                                    uint32_t count, Ahead& ahead, uint64_t ahead_bytes) {
    uint64_t halves[kPanelQblocks][kPanelOutputs / 4];
    for (uint32_t b = 0; b < count; ++b) {
      ahead.advance(ahead_bytes);
      const uint64_t offset = uint64_t{first + b} * kQblockBytes;
      WideInts quads[8];
#pragma unroll
      for (uint32_t i = 0; i < 8; ++i) {
        const uint32_t row = i / 4 * 8 + i % 4;
        quads[i] = (WideInts)biased(quants(rows[row] + offset), quants(rows[row + 4] + offset));
      }
      panel.store_transposed(b, quads);
      // Four halves a store: single ones would fill the store queue.
#pragma unroll
      for (uint32_t o = 0; o < kPanelOutputs; o += 4) {
        halves[b][o / 4] = bits(rows[o] + offset) | bits(rows[o + 1] + offset) << 16 |
                           bits(rows[o + 2] + offset) << 32 | bits(rows[o + 3] + offset) << 48;
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
  static MTLQWEN_INLINE float scale(const uint8_t* qblock) {
    _Float16 value;
    __builtin_memcpy(&value, qblock, sizeof value);
    return static_cast<float>(value);
  }
  static MTLQWEN_INLINE LooseHalfBytes quants(const uint8_t* qblock) {
    return *reinterpret_cast<const LooseHalfBytes*>(qblock + 2);
  }
  static MTLQWEN_INLINE WideBytes biased(LooseHalfBytes low, LooseHalfBytes high) {
    return join(low, high) ^ static_cast<uint8_t>(kBias);
  }
};

}  // namespace mtlqwen::twins
