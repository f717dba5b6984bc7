// Int8 rows, as metal/int8.h defines them: q[k], scale[k / 32], sum[k / 32]. The same bytes.
#pragma once
#include "wide.h"

namespace mtlqwen::twins {

constexpr uint32_t kInt8Qblock = 32;
constexpr uint32_t kInt8QblockBytes = 40;

MTLQWEN_WIDE(WideBits, uint32_t, 64);

inline uint64_t int8_row_bytes(uint32_t k) { return uint64_t{k / kInt8Qblock} * kInt8QblockBytes; }

// The parts of the row that starts at `row`, of k elements. Rows are 8-byte aligned.
inline const int8_t* int8_quants(const uint8_t* row) {
  return reinterpret_cast<const int8_t*>(row);
}
inline const float* int8_scales(const uint8_t* row, uint32_t k) {
  return reinterpret_cast<const float*>(row + k);
}
inline const int32_t* int8_sums(const uint8_t* row, uint32_t k) {
  return reinterpret_cast<const int32_t*>(row + k + k / kInt8Qblock * 4);
}

// Stores the 32 elements `low`, `high` as qblock number `qblock` of the row.
MTLQWEN_INLINE void int8_quantise(uint8_t* row, uint32_t k, uint32_t qblock, Wide low, Wide high) {
  // The bits of |x| are ordered as the values are, with infinity and NaN above all others.
  const WideBits magnitudes = __builtin_elementwise_max((WideBits)low & 0x7FFFFFFFU,  //
                                                        (WideBits)high & 0x7FFFFFFFU);
  const uint32_t most = __builtin_reduce_max(magnitudes);
  constexpr uint32_t kInfinity = 0x7F800000U;
  constexpr uint32_t kLeast = (127U - 100U) << 23;  // 2^-100
  constexpr uint32_t kNan = 0x7FC00000U;

  WideInts first = 0;
  WideInts second = 0;
  float scale = 0.0F;
  if (most >= kInfinity) {
    __builtin_memcpy(&scale, &kNan, sizeof scale);
  } else if (most >= kLeast) {
    float largest;
    __builtin_memcpy(&largest, &most, sizeof largest);
    const float inverse = 127.0F / largest;
    first = __builtin_convertvector(__builtin_elementwise_roundeven(low * inverse), WideInts);
    second = __builtin_convertvector(__builtin_elementwise_roundeven(high * inverse), WideInts);
    scale = largest / 127.0F;
  }
  auto* quants = reinterpret_cast<LooseChars*>(row + uint64_t{qblock} * kInt8Qblock);
  quants[0] = __builtin_convertvector(first, LooseChars);
  quants[1] = __builtin_convertvector(second, LooseChars);
  auto* scales = reinterpret_cast<float*>(row + k);
  scales[qblock] = scale;
  const int32_t sum = __builtin_reduce_add(first + second);
  reinterpret_cast<int32_t*>(scales + k / kInt8Qblock)[qblock] = sum;
}

}  // namespace mtlqwen::twins
