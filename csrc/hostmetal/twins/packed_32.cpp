// Formats of which 32 elements stand alone, and NVFP4: metal/packed.h.
#include "packed_format.h"

namespace mtlqwen::twins {
namespace {

struct Qblock32 {
  static constexpr uint32_t kElements = 32;
  static constexpr uint32_t kScales = 1;
};

struct FormatQ4_0 : Qblock32 {
  static constexpr uint32_t kBytes = 18;
  static constexpr uint32_t kOffsets = 0;
  static MTLQWEN_INLINE Codes codes(const uint8_t* qblock, uint32_t) {
    return (Codes)nibbles(qblock + 2) - 8;
  }
  static MTLQWEN_INLINE void scales(const uint8_t* qblock, float* scales, float*) {
    scales[0] = half_at(qblock);
  }
};

struct ScaleAndOffset : Qblock32 {
  static constexpr uint32_t kOffsets = 1;
  static MTLQWEN_INLINE void scales(const uint8_t* qblock, float* scales, float* offsets) {
    scales[0] = half_at(qblock);
    offsets[0] = half_at(qblock + 2);
  }
};

struct FormatQ4_1 : ScaleAndOffset {
  static constexpr uint32_t kBytes = 20;
  static MTLQWEN_INLINE Codes codes(const uint8_t* qblock, uint32_t) {
    return (Codes)nibbles(qblock + 4);
  }
};

// Bit i of 32 as the fifth of byte i.
MTLQWEN_INLINE Bytes32 fifth_bits(const uint8_t* from) {
  return spread_bits(load_value<uint32_t>(from)) & 16;
}

struct FormatQ5_0 : FormatQ4_0 {
  static constexpr uint32_t kBytes = 22;
  static MTLQWEN_INLINE Codes codes(const uint8_t* qblock, uint32_t) {
    return (Codes)(nibbles(qblock + 6) | fifth_bits(qblock + 2)) - 16;
  }
};

struct FormatQ5_1 : ScaleAndOffset {
  static constexpr uint32_t kBytes = 24;
  static MTLQWEN_INLINE Codes codes(const uint8_t* qblock, uint32_t) {
    return (Codes)(nibbles(qblock + 8) | fifth_bits(qblock + 4));
  }
};

struct FormatIQ4_NL : FormatQ4_0 {
  static MTLQWEN_INLINE Codes codes(const uint8_t* qblock, uint32_t) {
    return look_up(kIq4Values, nibbles(qblock + 2));
  }
};

struct FormatMXFP4 : Qblock32 {
  static constexpr uint32_t kBytes = 17;
  static constexpr uint32_t kOffsets = 0;
  static MTLQWEN_INLINE Codes codes(const uint8_t* qblock, uint32_t) {
    return look_up(kE2m1Values, nibbles(qblock + 1));
  }
  static MTLQWEN_INLINE void scales(const uint8_t* qblock, float* scales, float*) {
    const uint32_t e = qblock[0];
    const uint32_t bits = e < 2 ? 0x00200000U << e : (e - 1) << 23;
    __builtin_memcpy(scales, &bits, sizeof bits);
  }
};

struct FormatNVFP4 {
  static constexpr uint32_t kElements = 64;
  static constexpr uint32_t kBytes = 36;
  static constexpr uint32_t kScales = 2;
  static constexpr uint32_t kOffsets = 0;
  static MTLQWEN_INLINE Codes codes(const uint8_t* qblock, uint32_t part) {
    const Bytes32 all = nibbles(qblock + 4 + 16 * part);
    // Eight bytes have 16 elements.
    return look_up(kE2m1Values,
                   __builtin_shufflevector(all, all, 0, 1, 2, 3, 4, 5, 6, 7, 16, 17, 18, 19, 20, 21,
                                           22, 23, 8, 9, 10, 11, 12, 13, 14, 15, 24, 25, 26, 27, 28,
                                           29, 30, 31));
  }
  static MTLQWEN_INLINE void scales(const uint8_t* qblock, float* scales, float*) {
    for (uint32_t i = 0; i < 4; ++i) scales[i] = scale(qblock[i]);
  }
  static MTLQWEN_INLINE float scale(uint32_t e4m3) {
    const uint32_t exponent = e4m3 >> 3 & 15;
    const uint32_t bits = (exponent + 119) << 23 | (e4m3 & 7) << 20;
    float high;
    __builtin_memcpy(&high, &bits, sizeof high);
    const float low = static_cast<float>(e4m3 & 7) * 0x1p-10F;
    return e4m3 == 0x7F ? 0.0F : exponent == 0 ? low : high;
  }
};

}  // namespace

const PackedKernels kPackedKernelsQ4_0 = packed_kernels_of<FormatQ4_0>();
const PackedKernels kPackedKernelsQ4_1 = packed_kernels_of<FormatQ4_1>();
const PackedKernels kPackedKernelsQ5_0 = packed_kernels_of<FormatQ5_0>();
const PackedKernels kPackedKernelsQ5_1 = packed_kernels_of<FormatQ5_1>();
const PackedKernels kPackedKernelsIQ4_NL = packed_kernels_of<FormatIQ4_NL>();
const PackedKernels kPackedKernelsMXFP4 = packed_kernels_of<FormatMXFP4>();
const PackedKernels kPackedKernelsNVFP4 = packed_kernels_of<FormatNVFP4>();

}  // namespace mtlqwen::twins
