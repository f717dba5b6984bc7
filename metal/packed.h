// The quantised formats of GGUF beyond Q8_0. They share their kernels: the function constant kFormat
// says which one a pipeline is for, so a GPU's compiler leaves one case of each switch.
//
// A format is a struct with the elements and bytes of its qblock and one function:
//   codes(qblock, run)   the 16 weights from element 16 * run on, w = code * scale + offset
// Codes are whole and code * scale is exact in float: a weight rounds once, and only where its format
// has an offset. qblocks are 2-byte aligned but for MXFP4's.
#pragma once
#include "kernel_args.h"
#include "packed_iq.h"
#include "quant.h"

constant uint kFormat [[function_constant(2)]];  // PackedFormat

// Four elements of a qblock whose elements 16 .. 31 are the high nibbles of elements 0 .. 15.
inline int4 nibbles(device const uchar* at, uint run, uint i) {
  return (bytes_at(at + 4 * i) >> int(4 * run)) & 15;
}

// The fifth bits of elements `first` .. first + 3 of 32, in their place.
inline int4 fifth_bits(device const uchar* at, uint first) {
  const int four = at[first / 8] >> (first % 8);
  return ((int4(four) >> int4(0, 1, 2, 3)) & 1) << 4;
}

struct FormatQ4_0 {
  enum : uint { kElements = 32, kBytes = 18 };
  static Codes codes(device const uchar* qblock, uint run) {
    Codes out = {{}, half_at(qblock), kNoOffset};
    for (uint i = 0; i < 4; i++) out.codes[i] = nibbles(qblock + 2, run, i) - 8;
    return out;
  }
};

struct FormatQ4_1 {
  enum : uint { kElements = 32, kBytes = 20 };
  static Codes codes(device const uchar* qblock, uint run) {
    Codes out = {{}, half_at(qblock), half_at(qblock + 2)};
    for (uint i = 0; i < 4; i++) out.codes[i] = nibbles(qblock + 4, run, i);
    return out;
  }
};

struct FormatQ5_0 {
  enum : uint { kElements = 32, kBytes = 22 };
  static Codes codes(device const uchar* qblock, uint run) {
    Codes out = {{}, half_at(qblock), kNoOffset};
    for (uint i = 0; i < 4; i++) {
      const int4 high = fifth_bits(qblock + 2, 16 * run + 4 * i);
      out.codes[i] = (nibbles(qblock + 6, run, i) | high) - 16;
    }
    return out;
  }
};

struct FormatQ5_1 {
  enum : uint { kElements = 32, kBytes = 24 };
  static Codes codes(device const uchar* qblock, uint run) {
    Codes out = {{}, half_at(qblock), half_at(qblock + 2)};
    for (uint i = 0; i < 4; i++) {
      out.codes[i] = nibbles(qblock + 8, run, i) | fifth_bits(qblock + 4, 16 * run + 4 * i);
    }
    return out;
  }
};

// qblock: scale and offset nibbles (16), 2-bit codes (64), half d, half dmin.
struct FormatQ2_K {
  enum : uint { kElements = 256, kBytes = 84 };
  static Codes codes(device const uchar* qblock, uint run) {
    const uint both = qblock[run];
    Codes out = {
        {}, half_at(qblock + 80) * float(both & 15), -half_at(qblock + 82) * float(both >> 4)};
    device const uchar* at = qblock + 16 + run / 8 * 32 + run % 2 * 16;
    for (uint i = 0; i < 4; i++) out.codes[i] = (bytes_at(at + 4 * i) >> int(run % 8 / 2 * 2)) & 3;
    return out;
  }
};

// qblock: third bits, inverted (32), 2-bit codes (64), 6-bit scales (12), half d.
struct FormatQ3_K {
  enum : uint { kElements = 256, kBytes = 110 };
  static Codes codes(device const uchar* qblock, uint run) {
    device const uchar* scales = qblock + 96;
    const int low = (scales[run % 8] >> (run / 8 * 4)) & 15;
    const int high = (scales[8 + run % 4] >> (run / 4 * 2)) & 3;
    Codes out = {{}, half_at(qblock + 108) * float((low | high << 4) - 32), kNoOffset};
    device const uchar* at = qblock + 32 + run / 8 * 32 + run % 2 * 16;
    device const uchar* mask = qblock + run % 2 * 16;
    for (uint i = 0; i < 4; i++) {
      const int4 two = (bytes_at(at + 4 * i) >> int(run % 8 / 2 * 2)) & 3;
      out.codes[i] = (two | ((bytes_at(mask + 4 * i) >> int(run / 2)) & 1) << 2) - 4;
    }
    return out;
  }
};

// Scale (.x) and offset (.y) of the 32 elements `part` of a Q4_K or Q5_K qblock: 6 bits each.
inline float2 k_scales(device const uchar* qblock, uint part) {
  device const uchar* at = qblock + 4 + part % 4;
  const uint2 low = uint2(at[0], at[4]);
  const uint2 high = part < 4 ? low & 63 : uint2(at[8] & 15, at[8] >> 4) | low >> 6 << 4;
  return float2(half_at(qblock), -half_at(qblock + 2)) * float2(high);
}

// qblock: half d, half dmin, 6-bit scales and offsets (12), 4-bit codes (128).
struct FormatQ4_K {
  enum : uint { kElements = 256, kBytes = 144 };
  static Codes codes(device const uchar* qblock, uint run) {
    const float2 scale = k_scales(qblock, run / 2);
    Codes out = {{}, scale.x, scale.y};
    device const uchar* at = qblock + 16 + run / 4 * 32 + run % 2 * 16;
    for (uint i = 0; i < 4; i++) out.codes[i] = nibbles(at, run / 2 % 2, i);
    return out;
  }
};

// As Q4_K, with the fifth bits of the codes (32) before the others.
struct FormatQ5_K {
  enum : uint { kElements = 256, kBytes = 176 };
  static Codes codes(device const uchar* qblock, uint run) {
    const float2 scale = k_scales(qblock, run / 2);
    Codes out = {{}, scale.x, scale.y};
    device const uchar* at = qblock + 48 + run / 4 * 32 + run % 2 * 16;
    device const uchar* fifths = qblock + 16 + run % 2 * 16;
    for (uint i = 0; i < 4; i++) {
      const int4 fifth = (bytes_at(fifths + 4 * i) >> int(run / 2)) & 1;
      out.codes[i] = nibbles(at, run / 2 % 2, i) | fifth << 4;
    }
    return out;
  }
};

// qblock: low 4 bits of codes (128), high 2 bits (64), int8 scales (16), half d.
struct FormatQ6_K {
  enum : uint { kElements = 256, kBytes = 210 };
  static Codes codes(device const uchar* qblock, uint run) {
    const float scale = half_at(qblock + 208) * float(((device const char*)qblock)[192 + run]);
    Codes out = {{}, scale, kNoOffset};
    const uint part = run / 2 % 4;  // of 128 elements
    device const uchar* low = qblock + run / 8 * 64 + part % 2 * 32 + run % 2 * 16;
    device const uchar* high = qblock + 128 + run / 8 * 32 + run % 2 * 16;
    for (uint i = 0; i < 4; i++) {
      const int4 two = (bytes_at(high + 4 * i) >> int(2 * part)) & 3;
      out.codes[i] = (nibbles(low, part / 2, i) | two << 4) - 32;
    }
    return out;
  }
};

constant char kIq4Values[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                1,    13,   25,  38,  53,  69,  89,  113};
// Twice the values of E2M1.
constant char kE2m1Values[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

inline int4 iq4_values(int4 at) {
  return int4(kIq4Values[at.x], kIq4Values[at.y], kIq4Values[at.z], kIq4Values[at.w]);
}
inline int4 e2m1_values(int4 at) {
  return int4(kE2m1Values[at.x], kE2m1Values[at.y], kE2m1Values[at.z], kE2m1Values[at.w]);
}

struct FormatIQ4_NL {
  enum : uint { kElements = 32, kBytes = 18 };
  static Codes codes(device const uchar* qblock, uint run) {
    Codes out = {{}, half_at(qblock), kNoOffset};
    for (uint i = 0; i < 4; i++) out.codes[i] = iq4_values(nibbles(qblock + 2, run, i));
    return out;
  }
};

// qblock: half d, high 2 bits of scales (2), low 4 bits (4), codes (128).
struct FormatIQ4_XS {
  enum : uint { kElements = 256, kBytes = 136 };
  static Codes codes(device const uchar* qblock, uint run) {
    const uint part = run / 2;
    const int low = (qblock[4 + part / 2] >> (part % 2 * 4)) & 15;
    const int high = (qblock[2 + part / 4] >> (part % 4 * 2)) & 3;
    Codes out = {{}, half_at(qblock) * float((low | high << 4) - 32), kNoOffset};
    device const uchar* at = qblock + 8 + part * 16;
    for (uint i = 0; i < 4; i++) out.codes[i] = iq4_values(nibbles(at, run % 2, i));
    return out;
  }
};

// qblock: exponent of a power of two (1), E2M1 codes (16).
struct FormatMXFP4 {
  enum : uint { kElements = 32, kBytes = 17 };
  static Codes codes(device const uchar* qblock, uint run) {
    const uint e = qblock[0];
    Codes out = {{}, as_type<float>(e < 2 ? 0x00200000u << e : (e - 1) << 23), kNoOffset};
    for (uint i = 0; i < 4; i++) out.codes[i] = e2m1_values(nibbles(qblock + 1, run, i));
    return out;
  }
};

// qblock: UE4M3 scales of 16 elements each (4), E2M1 codes (32); 8 bytes have 16 elements.
struct FormatNVFP4 {
  enum : uint { kElements = 64, kBytes = 36 };
  static float scale(uint e4m3) {
    const uint exponent = e4m3 >> 3 & 15;
    const float low = float(e4m3 & 7) * 0x1p-10f;
    const float high = as_type<float>((exponent + 119) << 23 | (e4m3 & 7) << 20);
    return e4m3 == 0x7F ? 0.0f : exponent == 0 ? low : high;
  }
  static Codes codes(device const uchar* qblock, uint run) {
    Codes out = {{}, scale(qblock[run]), kNoOffset};
    device const uchar* at = qblock + 4 + 8 * run;
    for (uint i = 0; i < 4; i++) out.codes[i] = e2m1_values(nibbles(at, i / 2, i % 2));
    return out;
  }
};

#define MTLQWEN_PACKED_FORMATS(X)                                                                  \
  X(Q4_0)                                                                                          \
  X(Q4_1)                                                                                          \
  X(Q5_0)                                                                                          \
  X(Q5_1)                                                                                          \
  X(Q2_K)                                                                                          \
  X(Q3_K)                                                                                          \
  X(Q4_K)                                                                                          \
  X(Q5_K)                                                                                          \
  X(Q6_K)                                                                                          \
  X(IQ4_NL)                                                                                        \
  X(IQ4_XS) X(MXFP4) X(NVFP4) X(IQ1_S) X(IQ1_M) X(IQ2_XXS) X(IQ2_XS) X(IQ2_S) X(IQ3_XXS) X(IQ3_S)

// k is a multiple of the format's elements.
inline ulong packed_row_bytes(uint format, uint k) {
  switch (format) {
#define MTLQWEN_CASE(NAME)                                                                         \
  case kPacked##NAME:                                                                              \
    return ulong(k / Format##NAME::kElements) * Format##NAME::kBytes;
    MTLQWEN_PACKED_FORMATS(MTLQWEN_CASE)
#undef MTLQWEN_CASE
  }
  return 0;
}

// The 16 weights from `first` on, a multiple of 16.
inline Codes packed_codes(uint format, device const uchar* row, uint first) {
  switch (format) {
#define MTLQWEN_CASE(NAME)                                                                         \
  case kPacked##NAME:                                                                              \
    return Format##NAME::codes(row + first / Format##NAME::kElements * Format##NAME::kBytes,       \
                               first % Format##NAME::kElements / 16);
    MTLQWEN_PACKED_FORMATS(MTLQWEN_CASE)
#undef MTLQWEN_CASE
  }
  return {};
}

// The format of the pipeline.
struct FormatPacked {
  static ulong row_bytes(uint k) { return packed_row_bytes(kFormat, k); }

  static void unpack16(thread float4* out, device const uchar* row, uint first) {
    const Codes codes = packed_codes(kFormat, row, first);
    for (uint i = 0; i < 4; i++) out[i] = weights_of(codes, i);
  }
};
