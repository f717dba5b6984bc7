// GGUF Q8_0 for the int8 kernels: a qblock is a half scale and 32 int8, 34 bytes, 2-byte aligned.
// A format is a struct like this one: pair() and single() unpack a row, unpack() 16 rows.
#pragma once
#include "panel.h"

namespace mtlqwen::twins {

typedef uint16_t Shorts __attribute__((ext_vector_type(32)));
typedef uint16_t LooseShorts32 __attribute__((ext_vector_type(32), aligned(2)));
typedef _Float16 WideHalves __attribute__((ext_vector_type(16)));

struct FormatQ8_0 {
  static constexpr uint32_t kQblockBytes = 34;

  static uint64_t row_bytes(uint32_t k) { return uint64_t{k / kInt8Qblock} * kQblockBytes; }

  // Two neighbouring qblocks: their bytes, and their scales, each in half of the lanes.
  static MTLQWEN_INLINE void pair(const uint8_t* qblock, WideBytes& bytes, Wide& scales) {
#ifdef __AVX512BW__
    // Loads are what limits rows: one, and one of four bytes. The second scale is the 18th word.
    const Shorts words = *reinterpret_cast<const LooseShorts32*>(qblock);
    Shorts rest = 0;
    __builtin_memcpy(&rest, qblock + sizeof words, 2 * kQblockBytes - sizeof words);
    bytes = (WideBytes)__builtin_shufflevector(words, rest, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12,
                                               13, 14, 15, 16, 18, 19, 20, 21, 22, 23, 24, 25, 26,
                                               27, 28, 29, 30, 31, 32, 33) ^
            static_cast<uint8_t>(kBias);
    scales = __builtin_convertvector((WideHalves)__builtin_shufflevector(words, words, 0, 0, 0, 0,
                                                                         0, 0, 0, 0, 17, 17, 17, 17,
                                                                         17, 17, 17, 17),
                                     Wide);
#else
    bytes = biased(quants(qblock), quants(qblock + kQblockBytes));
    scales = halves_of(scale(qblock), scale(qblock + kQblockBytes));
#endif
  }
  // One qblock, with zeros in the place of a second.
  static MTLQWEN_INLINE void single(const uint8_t* qblock, WideBytes& bytes, Wide& scales) {
    bytes = biased(quants(qblock), LooseHalfBytes(0));
    scales = halves_of(scale(qblock), 0.0F);
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
        quads[i] = (WideInts)biased(quants(low), quants(low + 4 * row_bytes));
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
