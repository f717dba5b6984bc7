// What packed_*.cpp share: the vectors that formats unpack with, and the functions of PackedKernels
// as templates over a format. A format is a struct with
//   kElements, kBytes, kScales, kOffsets   as PackedKernels names them
//   codes(qblock, part)                    32 elements from 32 * part on, as whole numbers
//   scales(qblock, scales, offsets)        those of the qblock; w = code * scale + offset
#pragma once
#include "packed.h"

namespace mtlqwen::twins {

typedef int8_t Codes __attribute__((ext_vector_type(32), aligned(32)));
typedef uint8_t Bytes32 __attribute__((ext_vector_type(32), aligned(32)));
typedef uint8_t Bytes16 __attribute__((ext_vector_type(16), aligned(16)));
typedef uint8_t LooseBytes32 __attribute__((ext_vector_type(32), aligned(1)));
typedef uint8_t LooseBytes16 __attribute__((ext_vector_type(16), aligned(1)));
typedef uint16_t Shorts16 __attribute__((ext_vector_type(16), aligned(32)));

MTLQWEN_INLINE Bytes32 load32(const uint8_t* from) {
  return *reinterpret_cast<const LooseBytes32*>(from);
}
MTLQWEN_INLINE Bytes16 load16(const uint8_t* from) {
  return *reinterpret_cast<const LooseBytes16*>(from);
}
template <class T>
MTLQWEN_INLINE T load_value(const uint8_t* from) {
  T value;
  __builtin_memcpy(&value, from, sizeof value);
  return value;
}
MTLQWEN_INLINE float half_at(const uint8_t* from) {
  return static_cast<float>(load_value<_Float16>(from));
}

MTLQWEN_INLINE Bytes32 join(Bytes16 low, Bytes16 high) {
  return __builtin_shufflevector(low, high, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15,
                                 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31);
}
// 16 bytes hold elements 0 .. 15 as low nibbles, 16 .. 31 as high ones.
MTLQWEN_INLINE Bytes32 nibbles(const uint8_t* from) {
  const Bytes16 bytes = load16(from);
  return join(bytes & 15, bytes >> 4);
}
// The bits of each byte from `shift` on that `mask` has. CPUs shift 16 bits at a time.
MTLQWEN_INLINE Bytes32 bits(Bytes32 bytes, uint32_t shift, uint8_t mask) {
  return (Bytes32)((Shorts16)bytes >> static_cast<uint16_t>(shift)) & mask;
}
// Bit i as all bits of byte i.
MTLQWEN_INLINE Bytes32 spread_bits(uint32_t bits) {
  typedef uint32_t Words8 __attribute__((ext_vector_type(8)));
  typedef uint64_t Words4 __attribute__((ext_vector_type(4)));
  const auto all = (Bytes32)Words8(bits);
  const Bytes32 spread =
      __builtin_shufflevector(all, all, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 18, 18, 18,
                              18, 18, 18, 18, 18, 19, 19, 19, 19, 19, 19, 19, 19);
  const auto own = (Bytes32)Words4(0x8040201008040201U);
  return (Bytes32)((spread & own) == own);
}

constexpr int8_t kIq4Values[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                   1,    13,   25,  38,  53,  69,  89,  113};
// Twice the values of E2M1.
constexpr int8_t kE2m1Values[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

// values[i] of 32 indices below 16.
MTLQWEN_INLINE Codes look_up(const int8_t* values, Bytes32 at) {
#if defined(__x86_64__)
  const __m256i both =
      _mm256_broadcastsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(values)));
  return (Codes)_mm256_shuffle_epi8(both, (__m256i)at);
#else
  const int8x16_t table = vld1q_s8(values);
  const auto low = (Bytes16)vqtbl1q_s8(table, (uint8x16_t)at.lo);
  const auto high = (Bytes16)vqtbl1q_s8(table, (uint8x16_t)at.hi);
  return (Codes)join(low, high);
#endif
}

constexpr uint32_t kPackedAheadBytes = 4096;  // of a row of weights

// The product of an int16 row with one row of weights. Two totals where a qblock has several parts:
// one would wait for its last addition.
template <class Format>
MTLQWEN_INLINE float dot(const uint8_t* x, const uint8_t* weights, uint32_t k) {
  constexpr uint32_t kParts = Format::kElements / kInt16Qblock;
  const int16_t* quants = int16_quants(x);
  const float* row_scales = int16_scales(x, k);
  const float* row_sums = int16_sums(x, k);
  Wide totals[2] = {};
  Wide offset_totals = 0.0F;
  float offset_total = 0.0F;
  for (uint32_t first = 0; first < k; first += Format::kElements) {
    for (uint32_t byte = 0; byte < Format::kBytes; byte += 64) {
      __builtin_prefetch(weights + byte + kPackedAheadBytes);
    }
    alignas(64) float scales[kWide];
    alignas(64) float offsets[kWide];
    Format::scales(weights, scales, offsets);
#pragma unroll
    for (uint32_t p = 0; p < kParts; ++p) {
      const auto w = __builtin_convertvector(Format::codes(weights, p), Pairs);
      const WideInts products = multiply(w, *reinterpret_cast<const LoosePairs*>(quants));
      const float row_scale = row_scales[p];
      Wide scale;
      if constexpr (Format::kScales == 1) {
        scale = scales[p] * row_scale;
      } else {
        scale.lo = scales[2 * p] * row_scale;
        scale.hi = scales[2 * p + 1] * row_scale;
      }
      Wide& total = totals[p % 2];
      total = multiply_add(__builtin_convertvector(products, Wide), scale, total);
      if constexpr (Format::kOffsets == 1) {
        offset_total += offsets[p] * (row_sums[2 * p] + row_sums[2 * p + 1]);
      }
      quants += kInt16Qblock;
    }
    if constexpr (Format::kOffsets == 2) {
      static_assert(kParts == kWide / 2);
      offset_totals = multiply_add(load(offsets), load(row_sums), offset_totals);
    }
    row_scales += kParts;
    row_sums += 2 * kParts;
    weights += Format::kBytes;
  }
  return fold(totals[0] + totals[1] + offset_totals) + offset_total;
}

template <class Format>
__attribute__((min_vector_width(512))) void
multiply_rows_of(float* sums, const uint8_t* x, const uint8_t* weights, uint32_t k, uint32_t n) {
  for (uint32_t o = 0; o < n; ++o) {
    sums[o] = dot<Format>(x, weights, k);
    weights += uint64_t{k / Format::kElements} * Format::kBytes;
  }
}

template <class Format>
__attribute__((min_vector_width(512))) void
unpack_panel_of(Panel& panel, uint32_t at, const uint8_t* qblock, uint64_t row_bytes) {
  constexpr uint32_t kParts = Format::kElements / kInt16Qblock;
  alignas(64) float scales[kPanelOutputs][kWide];
  alignas(64) float offsets[kPanelOutputs][kWide];
  for (uint32_t o = 0; o < kPanelOutputs; ++o) {
    Format::scales(qblock + o * row_bytes, scales[o], offsets[o]);
  }
  for (uint32_t p = 0; p < kParts; ++p) {
    WideInts quads[8];
#pragma unroll
    for (uint32_t i = 0; i < 8; ++i) {
      const uint8_t* low = qblock + (i / 4 * 8 + i % 4) * row_bytes;
      quads[i] = (WideInts)Column::interleave(Format::codes(low, p),
                                              Format::codes(low + 4 * row_bytes, p));
    }
    const Column column(quads);
#pragma unroll
    for (uint32_t s = 0; s < kSteps; ++s) panel.weights[at + p][s] = column.pairs(s);
    for (uint32_t part = 0; part < Format::kScales; ++part) {
      Wide& to = panel.scales[at + p][part];
      for (uint32_t o = 0; o < kPanelOutputs; ++o) to[o] = scales[o][Format::kScales * p + part];
    }
    for (uint32_t part = 0; part < Format::kOffsets; ++part) {
      Wide& to = panel.offsets[at + p][part];
      for (uint32_t o = 0; o < kPanelOutputs; ++o) to[o] = offsets[o][Format::kOffsets * p + part];
    }
  }
}

template <class Format>
__attribute__((min_vector_width(512))) void unpack_of(float* out, const uint8_t* qblock) {
  float scales[kWide];
  float offsets[kWide];
  Format::scales(qblock, scales, offsets);
  for (uint32_t p = 0; p < Format::kElements / kInt16Qblock; ++p) {
    const Codes codes = Format::codes(qblock, p);
#pragma unroll
    for (uint32_t half = 0; half < 2; ++half) {
      const Wide values = half == 0 ? __builtin_convertvector(codes.lo, Wide)
                                    : __builtin_convertvector(codes.hi, Wide);
      const Wide scale = scales[Format::kScales == 1 ? p : 2 * p + half];
      Wide weights = values * scale;
      if constexpr (Format::kOffsets > 0) {
        weights =
            multiply_add(values, scale, Wide(offsets[Format::kOffsets == 1 ? p : 2 * p + half]));
      }
      store(out + p * kInt16Qblock + half * kWide, weights);
    }
  }
}

template <class Format>
constexpr PackedKernels packed_kernels_of() {
  return {.elements = Format::kElements,
          .bytes = Format::kBytes,
          .scales = Format::kScales,
          .offsets = Format::kOffsets,
          .multiply = multiply_rows_of<Format>,
          .unpack_panel = unpack_panel_of<Format>,
          .unpack = unpack_of<Format>};
}

}  // namespace mtlqwen::twins
