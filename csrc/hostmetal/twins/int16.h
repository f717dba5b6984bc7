// Int16 rows, as metal/int16.h defines them: q[k], scale[k / 32], sum[k / 16]. The same bytes.
#pragma once
#include "wide.h"

namespace mtlqwen::twins {

constexpr uint32_t kInt16Qblock = 32;
constexpr uint32_t kInt16QblockBytes = 76;

MTLQWEN_WIDE(WideBits, uint32_t, 64);
typedef int16_t LooseInt16s __attribute__((ext_vector_type(16), aligned(2)));

inline uint64_t int16_row_bytes(uint32_t k) {
  return uint64_t{k / kInt16Qblock} * kInt16QblockBytes;
}

// The parts of the row that starts at `row`, of k elements. Rows are 4-byte aligned.
inline const int16_t* int16_quants(const uint8_t* row) {
  return reinterpret_cast<const int16_t*>(row);
}
inline const float* int16_scales(const uint8_t* row, uint32_t k) {
  return reinterpret_cast<const float*>(row + uint64_t{2} * k);
}
inline const float* int16_sums(const uint8_t* row, uint32_t k) {
  return int16_scales(row, k) + k / kInt16Qblock;
}

// Stores the 32 elements `low`, `high` as qblock number `qblock` of the row.
MTLQWEN_INLINE void int16_quantise(uint8_t* row, uint32_t k, uint32_t qblock, Wide low, Wide high) {
  // The bits of |x| are ordered as the values are, with infinity and NaN above all others.
  const WideBits magnitudes = __builtin_elementwise_max((WideBits)low & 0x7FFFFFFFU,  //
                                                        (WideBits)high & 0x7FFFFFFFU);
  const uint32_t most = __builtin_reduce_max(magnitudes);
  constexpr uint32_t kInfinity = 0x7F800000U;
  constexpr uint32_t kLeast = (127U - 100U) << 23;  // 2^-100
  constexpr uint32_t kNan = 0x7FC00000U;
  constexpr float kMost = 32767.0F;

  WideInts first = 0;
  WideInts second = 0;
  float scale = 0.0F;
  if (most >= kInfinity) {
    __builtin_memcpy(&scale, &kNan, sizeof scale);
  } else if (most >= kLeast) {
    float largest;
    __builtin_memcpy(&largest, &most, sizeof largest);
    const float inverse = kMost / largest;
    first = __builtin_convertvector(__builtin_elementwise_roundeven(low * inverse), WideInts);
    second = __builtin_convertvector(__builtin_elementwise_roundeven(high * inverse), WideInts);
    scale = largest / kMost;
  }
  auto* quants = reinterpret_cast<LooseInt16s*>(row + uint64_t{qblock} * kInt16Qblock * 2);
  quants[0] = __builtin_convertvector(first, LooseInt16s);
  quants[1] = __builtin_convertvector(second, LooseInt16s);
  auto* scales = reinterpret_cast<float*>(row + uint64_t{2} * k);
  scales[qblock] = scale;
  float* sums = scales + k / kInt16Qblock + uint64_t{2} * qblock;
  sums[0] = scale * static_cast<float>(__builtin_reduce_add(first));
  sums[1] = scale * static_cast<float>(__builtin_reduce_add(second));
}

}  // namespace mtlqwen::twins
