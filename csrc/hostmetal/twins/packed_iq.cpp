// Formats whose codes are numbers of groups of weights: metal/packed_iq.h.
#include "grids.h"
#include "packed_format.h"

namespace mtlqwen::twins {
namespace {

typedef uint64_t Words4 __attribute__((ext_vector_type(4)));
typedef uint32_t Words8 __attribute__((ext_vector_type(8)));

constexpr int8_t kIq1Values[16] = {-8, 0, 8};
constexpr int8_t kIq2Values[16] = {8, 25, 43};
constexpr int8_t kIq3XxsValues[16] = {4, 12, 20, 28, 36, 44, 52, 62};
constexpr int8_t kIq3SValues[16] = {1, 3, 5, 7, 9, 11, 13, 15};

// Eight numbers of 2 bits, or four of 3, in a byte each.
MTLQWEN_INLINE uint64_t spread_twos(uint64_t entry) {
#if defined(__BMI2__)
  return _pdep_u64(entry, 0x0303030303030303U);
#else
  entry = (entry | entry << 24) & 0x000000FF000000FFU;
  entry = (entry | entry << 12) & 0x000F000F000F000FU;
  return (entry | entry << 6) & 0x0303030303030303U;
#endif
}
MTLQWEN_INLINE uint32_t spread_threes(uint32_t entry) {
#if defined(__BMI2__)
  return _pdep_u32(entry, 0x07070707U);
#else
  entry = (entry | entry << 10) & 0x003F003FU;
  return (entry | entry << 5) & 0x07070707U;
#endif
}

// Bit i of `signs` negates weight i.
MTLQWEN_INLINE Codes with_signs(Codes values, uint32_t signs) {
  const auto minus = (Codes)spread_bits(signs);
  return (values ^ minus) - minus;
}
// Four times seven signs; the eighth of each makes their number even.
MTLQWEN_INLINE uint32_t even_signs(uint32_t sevens) {
  uint32_t odd = sevens ^ sevens >> 4;
  odd ^= odd >> 2;
  odd ^= odd >> 1;
  return sevens | (odd & 0x01010101U) << 7;
}
// Bits 0 .. 6, 7 .. 13, 14 .. 20 and 21 .. 27 in a byte each.
MTLQWEN_INLINE uint32_t spread_sevens(uint32_t bits) {
  return (bits & 0x7F) | (bits << 1 & 0x7F00) | (bits << 2 & 0x7F0000) | (bits << 3 & 0x7F000000);
}

// entry(i) of four groups of 8 weights; of eight groups of 4.
template <class Entry>
MTLQWEN_INLINE Codes eights(const int8_t* values, const Entry& entry) {
  const Words4 numbers = {spread_twos(entry(0)), spread_twos(entry(1)), spread_twos(entry(2)),
                          spread_twos(entry(3))};
  return look_up(values, (Bytes32)numbers);
}
template <class Entry>
MTLQWEN_INLINE Codes fours(const int8_t* values, const Entry& entry) {
  const Words8 numbers = {spread_threes(entry(0)), spread_threes(entry(1)), spread_threes(entry(2)),
                          spread_threes(entry(3)), spread_threes(entry(4)), spread_threes(entry(5)),
                          spread_threes(entry(6)), spread_threes(entry(7))};
  return look_up(values, (Bytes32)numbers);
}

struct Grid {
  static constexpr uint32_t kElements = 256;
  static constexpr uint32_t kOffsets = 0;
};

// scale(i) of n runs of elements.
template <class Scale>
MTLQWEN_INLINE void store_scales(float* scales, uint32_t n, const Scale& scale) {
  for (uint32_t i = 0; i < n; ++i) scales[i] = scale(i);
}

// Sixteen 4-bit scales, of 16 elements each: d * (0.5 + scale) / 4.
MTLQWEN_INLINE void store_iq2_scales(float* scales, const uint8_t* nibbles, float d) {
  const uint64_t all = load_value<uint64_t>(nibbles);
  store_scales(scales, kWide, [&](uint32_t i) {
    return d * (0.5F + static_cast<float>(all >> (4 * i) & 15)) * 0.25F;
  });
}

struct FormatIQ2_XXS : Grid {
  static constexpr uint32_t kBytes = 66;
  static constexpr uint32_t kScales = 1;
  static MTLQWEN_INLINE Codes codes(const uint8_t* qblock, uint32_t part) {
    const uint8_t* at = qblock + 2 + 8 * part;
    const Codes values = eights(kIq2Values, [&](uint32_t i) { return kGridIQ2_XXS[at[i]]; });
    return with_signs(values, even_signs(spread_sevens(load_value<uint32_t>(at + 4))));
  }
  static MTLQWEN_INLINE void scales(const uint8_t* qblock, float* scales, float*) {
    const float d = half_at(qblock);
    store_scales(scales, 8, [&](uint32_t i) {
      return d * (0.5F + static_cast<float>(qblock[9 + 8 * i] >> 4)) * 0.25F;
    });
  }
};

struct FormatIQ2_XS : Grid {
  static constexpr uint32_t kBytes = 74;
  static constexpr uint32_t kScales = 2;
  static MTLQWEN_INLINE Codes codes(const uint8_t* qblock, uint32_t part) {
    const auto all = load_value<uint64_t>(qblock + 2 + 8 * part);
    const auto code = [&](uint32_t i) { return static_cast<uint32_t>(all >> (16 * i)) & 0xFFFF; };
    const Codes values = eights(kIq2Values, [&](uint32_t i) { return kGridIQ2_XS[code(i) & 511]; });
    const uint32_t sevens =
        code(0) >> 9 | code(1) >> 9 << 8 | code(2) >> 9 << 16 | code(3) >> 9 << 24;
    return with_signs(values, even_signs(sevens));
  }
  static MTLQWEN_INLINE void scales(const uint8_t* qblock, float* scales, float*) {
    store_iq2_scales(scales, qblock + 66, half_at(qblock));
  }
};

struct FormatIQ2_S : Grid {
  static constexpr uint32_t kBytes = 82;
  static constexpr uint32_t kScales = 2;
  static MTLQWEN_INLINE Codes codes(const uint8_t* qblock, uint32_t part) {
    const uint8_t* low = qblock + 2 + 4 * part;
    const uint32_t high = qblock[66 + part];
    const Codes values = eights(
        kIq2Values, [&](uint32_t i) { return kGridIQ2_S[low[i] | (high >> (2 * i) & 3) << 8]; });
    return with_signs(values, load_value<uint32_t>(qblock + 34 + 4 * part));
  }
  static MTLQWEN_INLINE void scales(const uint8_t* qblock, float* scales, float*) {
    store_iq2_scales(scales, qblock + 74, half_at(qblock));
  }
};

struct FormatIQ3_XXS : Grid {
  static constexpr uint32_t kBytes = 98;
  static constexpr uint32_t kScales = 1;
  static MTLQWEN_INLINE Codes codes(const uint8_t* qblock, uint32_t part) {
    const uint8_t* at = qblock + 2 + 8 * part;
    const Codes values = fours(kIq3XxsValues, [&](uint32_t i) { return kGridIQ3_XXS[at[i]]; });
    const auto rest = load_value<uint32_t>(qblock + 66 + 4 * part);
    return with_signs(values, even_signs(spread_sevens(rest)));
  }
  static MTLQWEN_INLINE void scales(const uint8_t* qblock, float* scales, float*) {
    const float d = half_at(qblock);
    store_scales(scales, 8, [&](uint32_t i) {
      return d * (0.5F + static_cast<float>(qblock[69 + 4 * i] >> 4)) * 0.5F;
    });
  }
};

struct FormatIQ3_S : Grid {
  static constexpr uint32_t kBytes = 110;
  static constexpr uint32_t kScales = 1;
  static MTLQWEN_INLINE Codes codes(const uint8_t* qblock, uint32_t part) {
    const uint8_t* low = qblock + 2 + 8 * part;
    const uint32_t high = qblock[66 + part];
    const Codes values =
        fours(kIq3SValues, [&](uint32_t i) { return kGridIQ3_S[low[i] | (high >> i & 1) << 8]; });
    return with_signs(values, load_value<uint32_t>(qblock + 74 + 4 * part));
  }
  static MTLQWEN_INLINE void scales(const uint8_t* qblock, float* scales, float*) {
    const float d = half_at(qblock);
    const auto all = load_value<uint32_t>(qblock + 106);
    store_scales(scales, 8,
                 [&](uint32_t i) { return d * static_cast<float>(1 + 2 * (all >> (4 * i) & 15)); });
  }
};

struct FormatIQ1_S : Grid {
  static constexpr uint32_t kBytes = 50;
  static constexpr uint32_t kScales = 1;
  static MTLQWEN_INLINE Codes codes(const uint8_t* qblock, uint32_t part) {
    const uint8_t* low = qblock + 2 + 4 * part;
    const uint32_t rest = load_value<uint16_t>(qblock + 34 + 2 * part);
    const Codes values = eights(
        kIq1Values, [&](uint32_t i) { return kGridIQ1[low[i] | (rest >> (3 * i) & 7) << 8]; });
    return values + static_cast<int8_t>(rest >> 15 != 0 ? -1 : 1);
  }
  static MTLQWEN_INLINE void scales(const uint8_t* qblock, float* scales, float*) {
    const float d = half_at(qblock);
    store_scales(scales, 8, [&](uint32_t i) {
      return d * static_cast<float>(2 * (qblock[35 + 2 * i] >> 4 & 7) + 1) * 0.125F;
    });
  }
};

struct FormatIQ1_M : Grid {
  static constexpr uint32_t kBytes = 56;
  static constexpr uint32_t kScales = 2;
  static MTLQWEN_INLINE Codes codes(const uint8_t* qblock, uint32_t part) {
    const uint8_t* low = qblock + 4 * part;
    const uint32_t nibbles = load_value<uint16_t>(qblock + 32 + 2 * part);
    const Codes values = eights(
        kIq1Values, [&](uint32_t i) { return kGridIQ1[low[i] | (nibbles >> (4 * i) & 7) << 8]; });
    const auto eighth = [&](uint32_t i) {
      return (nibbles >> (4 * i) & 8) != 0 ? 0xFFFFFFFFFFFFFFFFU : 0x0101010101010101U;
    };
    return values + (Codes)Words4{eighth(0), eighth(1), eighth(2), eighth(3)};
  }
  static MTLQWEN_INLINE void scales(const uint8_t* qblock, float* scales, float*) {
    const auto all = load_value<uint64_t>(qblock + 48);
    const auto bits = static_cast<uint16_t>((all >> 12 & 0xF) | (all >> 24 & 0xF0) |
                                            (all >> 36 & 0xF00) | (all >> 48 & 0xF000));
    const float d = half_at(reinterpret_cast<const uint8_t*>(&bits));
    store_scales(scales, kWide, [&](uint32_t i) {
      return d * static_cast<float>(2 * (all >> (i / 4 * 16 + i % 4 * 3) & 7) + 1) * 0.125F;
    });
  }
};

}  // namespace

const PackedKernels kPackedKernelsIQ1_S = packed_kernels_of<FormatIQ1_S>();
const PackedKernels kPackedKernelsIQ1_M = packed_kernels_of<FormatIQ1_M>();
const PackedKernels kPackedKernelsIQ2_XXS = packed_kernels_of<FormatIQ2_XXS>();
const PackedKernels kPackedKernelsIQ2_XS = packed_kernels_of<FormatIQ2_XS>();
const PackedKernels kPackedKernelsIQ2_S = packed_kernels_of<FormatIQ2_S>();
const PackedKernels kPackedKernelsIQ3_XXS = packed_kernels_of<FormatIQ3_XXS>();
const PackedKernels kPackedKernelsIQ3_S = packed_kernels_of<FormatIQ3_S>();

}  // namespace mtlqwen::twins
