// The formats of packed.h whose codes are numbers of groups of weights (grids.h), with signs beside
// them. qblocks have 256 elements.
#pragma once
#include "grids.h"
#include "packed_codes.h"

// Numbers of the weights 4 * i .. 4 * i + 3 of a grid's entry: 2 bits each, then 3.
inline int4 twos(uint entry, uint i) {
  return int4((uint4(entry) >> (uint4(0, 2, 4, 6) + 8 * i)) & 3);
}
inline int4 threes(uint entry) { return int4((uint4(entry) >> uint4(0, 3, 6, 9)) & 7); }

// 8, 25, 43; 4, 12, .. 52, 62; 1, 3, .. 15.
inline int4 iq2_values(int4 numbers) { return 8 + 17 * numbers + (numbers >> 1); }
inline int4 iq3_xxs_values(int4 numbers) { return 4 + 8 * numbers + ((numbers + 1) >> 3) * 2; }
inline int4 iq3_s_values(int4 numbers) { return 1 + 2 * numbers; }

// The lowest bits of `signs` negate.
inline int4 with_signs(int4 values, uint signs) {
  const int4 minus = int4((uint4(signs) >> uint4(0, 1, 2, 3)) & 1);
  return (values ^ -minus) + minus;
}
// The number of the eight signs is even; seven are stored, the lowest of `bits`.
inline uint eight_signs(uint bits) { return (bits & 127) | (popcount(bits & 127) & 1) << 7; }

inline uint short_at(device const uchar* at) { return uint(*(device const ushort*)at); }
inline uint word_at(device const uchar* at) { return short_at(at) | short_at(at + 2) << 16; }

// qblock: half d; for each 32 elements 4 entries (4), 4 x 7 signs and a 4-bit scale (4).
struct FormatIQ2_XXS {
  enum : uint { kElements = 256, kBytes = 66 };
  static Codes codes(device const uchar* qblock, uint run) {
    device const uchar* at = qblock + 2 + run / 2 * 8;
    const uint rest = word_at(at + 4);
    Codes out = {{}, half_at(qblock) * (0.5f + float(rest >> 28)) * 0.25f, kNoOffset};
    for (uint i = 0; i < 4; i++) {
      const uint group = run % 2 * 2 + i / 2;
      const int4 values = iq2_values(twos(kGridIQ2_XXS[at[group]], i % 2));
      out.codes[i] = with_signs(values, eight_signs(rest >> (7 * group)) >> (i % 2 * 4));
    }
    return out;
  }
};

// qblock: half d; 9-bit entries with 7 signs each (64), 4-bit scales of 16 elements (8).
struct FormatIQ2_XS {
  enum : uint { kElements = 256, kBytes = 74 };
  static Codes codes(device const uchar* qblock, uint run) {
    const uint nibble = qblock[66 + run / 2] >> (run % 2 * 4) & 15;
    Codes out = {{}, half_at(qblock) * (0.5f + float(nibble)) * 0.25f, kNoOffset};
    for (uint i = 0; i < 4; i++) {
      const uint code = short_at(qblock + 2 + run * 4 + i / 2 * 2);
      const int4 values = iq2_values(twos(kGridIQ2_XS[code & 511], i % 2));
      out.codes[i] = with_signs(values, eight_signs(code >> 9) >> (i % 2 * 4));
    }
    return out;
  }
};

// qblock: half d; low 8 bits of entries (32), signs (32), high 2 bits of entries (8), scales as above.
struct FormatIQ2_S {
  enum : uint { kElements = 256, kBytes = 82 };
  static Codes codes(device const uchar* qblock, uint run) {
    const uint nibble = qblock[74 + run / 2] >> (run % 2 * 4) & 15;
    Codes out = {{}, half_at(qblock) * (0.5f + float(nibble)) * 0.25f, kNoOffset};
    for (uint i = 0; i < 4; i++) {
      const uint group = 2 * run + i / 2;
      const uint high = qblock[66 + run / 2] >> (group % 4 * 2) & 3;
      const int4 values = iq2_values(twos(kGridIQ2_S[qblock[2 + group] | high << 8], i % 2));
      out.codes[i] = with_signs(values, uint(qblock[34 + group]) >> (i % 2 * 4));
    }
    return out;
  }
};

// qblock: half d; entries (64); for each 32 elements 4 x 7 signs and a 4-bit scale (4).
struct FormatIQ3_XXS {
  enum : uint { kElements = 256, kBytes = 98 };
  static Codes codes(device const uchar* qblock, uint run) {
    const uint rest = word_at(qblock + 66 + run / 2 * 4);
    Codes out = {{}, half_at(qblock) * (0.5f + float(rest >> 28)) * 0.5f, kNoOffset};
    for (uint i = 0; i < 4; i++) {
      const int4 values = iq3_xxs_values(threes(kGridIQ3_XXS[qblock[2 + run * 4 + i]]));
      const uint signs = eight_signs(rest >> (7 * (run % 2 * 2 + i / 2)));
      out.codes[i] = with_signs(values, signs >> (i % 2 * 4));
    }
    return out;
  }
};

// qblock: half d; low 8 bits of entries (64), high bits (8), signs (32), 4-bit scales of 32 elements.
struct FormatIQ3_S {
  enum : uint { kElements = 256, kBytes = 110 };
  static Codes codes(device const uchar* qblock, uint run) {
    const uint nibble = qblock[106 + run / 4] >> (run / 2 % 2 * 4) & 15;
    Codes out = {{}, half_at(qblock) * float(1 + 2 * nibble), kNoOffset};
    for (uint i = 0; i < 4; i++) {
      const uint high = qblock[66 + run / 2] >> (run % 2 * 4 + i) & 1;
      const int4 values = iq3_s_values(threes(kGridIQ3_S[qblock[2 + run * 4 + i] | high << 8]));
      out.codes[i] = with_signs(values, uint(qblock[74 + run * 2 + i / 2]) >> (i % 2 * 4));
    }
    return out;
  }
};

// Weights -1, 0, 1 with an eighth added or taken away: eighths are whole.
inline int4 iq1_values(uint entry, uint i, bool less) {
  return 8 * (twos(entry, i) - 1) + (less ? -1 : 1);
}

// qblock: half d; low 8 bits of entries (32); for each 32 elements 4 x 3 high bits, a 3-bit scale and
// the direction of the eighth (2).
struct FormatIQ1_S {
  enum : uint { kElements = 256, kBytes = 50 };
  static Codes codes(device const uchar* qblock, uint run) {
    const uint rest = short_at(qblock + 34 + run / 2 * 2);
    Codes out = {{}, half_at(qblock) * float(2 * (rest >> 12 & 7) + 1) * 0.125f, kNoOffset};
    for (uint i = 0; i < 4; i++) {
      const uint group = run % 2 * 2 + i / 2;
      const uint low = qblock[2 + run / 2 * 4 + group];
      const uint entry = kGridIQ1[low | (rest >> (3 * group) & 7) << 8];
      out.codes[i] = iq1_values(entry, i % 2, rest >> 15 != 0);
    }
    return out;
  }
};

// qblock: low 8 bits of entries (32); for each 8 elements 3 high bits and a direction (16); 4 x 3-bit
// scales of 16 elements and a quarter of half d, in each of four shorts (8).
struct FormatIQ1_M {
  enum : uint { kElements = 256, kBytes = 56 };
  static Codes codes(device const uchar* qblock, uint run) {
    device const uchar* shorts = qblock + 48;
    const uint bits = short_at(shorts) >> 12 | (short_at(shorts + 2) >> 12) << 4 |
                      (short_at(shorts + 4) >> 12) << 8 | (short_at(shorts + 6) >> 12) << 12;
    const uint scale = short_at(shorts + run / 4 * 2) >> (run % 4 * 3) & 7;
    const float d = float(as_type<half>(ushort(bits)));
    Codes out = {{}, d * float(2 * scale + 1) * 0.125f, kNoOffset};
    for (uint i = 0; i < 4; i++) {
      const uint nibble = qblock[32 + run] >> (i / 2 * 4);
      const uint entry = kGridIQ1[qblock[run * 2 + i / 2] | (nibble & 7) << 8];
      out.codes[i] = iq1_values(entry, i % 2, (nibble & 8) != 0);
    }
    return out;
  }
};
