// Formats of 256 elements with scales of their own for 16 or 32 of them: metal/packed.h.
#include "packed_format.h"

namespace mtlqwen::twins {
namespace {

typedef uint64_t Words2 __attribute__((ext_vector_type(2)));
typedef int8_t Chars16 __attribute__((ext_vector_type(16)));
typedef int32_t Ints8 __attribute__((ext_vector_type(8)));
typedef float LooseFloats8 __attribute__((ext_vector_type(8), aligned(4)));

struct Qblock256 {
  static constexpr uint32_t kElements = 256;
};

// Bytes 0x03 and so on in a word of four.
constexpr uint32_t each(uint32_t byte) { return byte * 0x01010101U; }

// Four scales of six bits: the low four and the high two.
constexpr uint32_t six_bits(uint32_t low, uint32_t high) {
  return (low & each(15)) | (high & each(3)) << 4;
}

MTLQWEN_INLINE uint64_t two_words(uint32_t low, uint32_t high) {
  return low | static_cast<uint64_t>(high) << 32;
}

struct FormatQ2_K : Qblock256 {
  static constexpr uint32_t kBytes = 84;
  static constexpr uint32_t kScales = 2;
  static constexpr uint32_t kOffsets = 2;
  static MTLQWEN_INLINE Codes codes(const uint8_t* qblock, uint32_t part) {
    return (Codes)bits(load32(qblock + 16 + part / 4 * 32), part % 4 * 2, 3);
  }
  static MTLQWEN_INLINE void scales(const uint8_t* qblock, float* scales, float* offsets) {
    const Bytes16 both = load16(qblock);
    store(scales, __builtin_convertvector(both & 15, Wide) * half_at(qblock + 80));
    store(offsets, __builtin_convertvector(both >> 4, Wide) * -half_at(qblock + 82));
  }
};

struct FormatQ3_K : Qblock256 {
  static constexpr uint32_t kBytes = 110;
  static constexpr uint32_t kScales = 2;
  static constexpr uint32_t kOffsets = 0;
  static MTLQWEN_INLINE Codes codes(const uint8_t* qblock, uint32_t part) {
    const Bytes32 low = bits(load32(qblock + 32 + part / 4 * 32), part % 4 * 2, 3);
    const Bytes32 high = bits(load32(qblock), part, 1) << 2;
    return (Codes)(low | high) - 4;
  }
  static MTLQWEN_INLINE void scales(const uint8_t* qblock, float* scales, float*) {
    const auto a = load_value<uint32_t>(qblock + 96);
    const auto b = load_value<uint32_t>(qblock + 100);
    const auto c = load_value<uint32_t>(qblock + 104);
    const Words2 words = {two_words(six_bits(a, c), six_bits(b, c >> 2)),
                          two_words(six_bits(a >> 4, c >> 4), six_bits(b >> 4, c >> 6))};
    const Wide values = __builtin_convertvector((Chars16)words - 32, Wide);
    store(scales, values * half_at(qblock + 108));
  }
};

struct FormatQ4_K : Qblock256 {
  static constexpr uint32_t kBytes = 144;
  static constexpr uint32_t kScales = 1;
  static constexpr uint32_t kOffsets = 1;
  static MTLQWEN_INLINE Codes codes(const uint8_t* qblock, uint32_t part) {
    return (Codes)bits(load32(qblock + 16 + part / 2 * 32), part % 2 * 4, 15);
  }
  static MTLQWEN_INLINE void scales(const uint8_t* qblock, float* scales, float* offsets) {
    const auto a = load_value<uint32_t>(qblock + 4);
    const auto b = load_value<uint32_t>(qblock + 8);
    const auto c = load_value<uint32_t>(qblock + 12);
    const Words2 words = {two_words(a & each(63), six_bits(c, a >> 6)),
                          two_words(b & each(63), six_bits(c >> 4, b >> 6))};
    const Wide values = __builtin_convertvector((Chars16)words, Wide);
    *reinterpret_cast<LooseFloats8*>(scales) = values.lo * half_at(qblock);
    *reinterpret_cast<LooseFloats8*>(offsets) = values.hi * -half_at(qblock + 2);
  }
};

struct FormatQ5_K : FormatQ4_K {
  static constexpr uint32_t kBytes = 176;
  static MTLQWEN_INLINE Codes codes(const uint8_t* qblock, uint32_t part) {
    const Bytes32 low = bits(load32(qblock + 48 + part / 2 * 32), part % 2 * 4, 15);
    return (Codes)(low | bits(load32(qblock + 16), part, 1) << 4);
  }
};

struct FormatQ6_K : Qblock256 {
  static constexpr uint32_t kBytes = 210;
  static constexpr uint32_t kScales = 2;
  static constexpr uint32_t kOffsets = 0;
  static MTLQWEN_INLINE Codes codes(const uint8_t* qblock, uint32_t part) {
    const uint32_t quarter = part % 4;
    const Bytes32 low =
        bits(load32(qblock + part / 4 * 64 + quarter % 2 * 32), quarter / 2 * 4, 15);
    const Bytes32 high = bits(load32(qblock + 128 + part / 4 * 32), quarter * 2, 3);
    return (Codes)(low | high << 4) - 32;
  }
  static MTLQWEN_INLINE void scales(const uint8_t* qblock, float* scales, float*) {
    const auto values = (Chars16)load16(qblock + 192);
    store(scales, __builtin_convertvector(values, Wide) * half_at(qblock + 208));
  }
};

struct FormatIQ4_XS : Qblock256 {
  static constexpr uint32_t kBytes = 136;
  static constexpr uint32_t kScales = 1;
  static constexpr uint32_t kOffsets = 0;
  static MTLQWEN_INLINE Codes codes(const uint8_t* qblock, uint32_t part) {
    return look_up(kIq4Values, nibbles(qblock + 8 + 16 * part));
  }
  static MTLQWEN_INLINE void scales(const uint8_t* qblock, float* scales, float*) {
    const Ints8 high = Ints8(load_value<uint16_t>(qblock + 2)) >> Ints8{0, 2, 4, 6, 8, 10, 12, 14};
    const Ints8 low = Ints8(load_value<int32_t>(qblock + 4)) >> Ints8{0, 4, 8, 12, 16, 20, 24, 28};
    const Ints8 values = ((low & 15) | (high & 3) << 4) - 32;
    *reinterpret_cast<LooseFloats8*>(scales) =
        __builtin_convertvector(values, LooseFloats8) * half_at(qblock);
  }
};

}  // namespace

const PackedKernels kPackedKernelsQ2_K = packed_kernels_of<FormatQ2_K>();
const PackedKernels kPackedKernelsQ3_K = packed_kernels_of<FormatQ3_K>();
const PackedKernels kPackedKernelsQ4_K = packed_kernels_of<FormatQ4_K>();
const PackedKernels kPackedKernelsQ5_K = packed_kernels_of<FormatQ5_K>();
const PackedKernels kPackedKernelsQ6_K = packed_kernels_of<FormatQ6_K>();
const PackedKernels kPackedKernelsIQ4_XS = packed_kernels_of<FormatIQ4_XS>();

}  // namespace mtlqwen::twins
