// Weight formats. Each is a struct with the same members, and a kernel is a template over it:
//   row_bytes(k)           bytes of a row of k elements (k is a multiple of 32)
//   unpack<W>(row, first)  as many elements as W holds, from `first` on, exactly; `first` is a
//                          multiple of that count
//   unpack16(out, row, first)  16 elements; packed.h has formats with this one alone
// Loads are as wide as the format's alignment allows (csrc/io/format.hpp, FormatInfo::alignment).
#pragma once
#include "wide.h"

enum : uint { kQblock = 32 };  // elements that share a scale; every k is a multiple of it

template <typename Format>
struct Unpack16 {
  static void unpack16(thread float4* out, device const uchar* row, uint first) {
    for (uint i = 0; i < 4; i++) out[i] = Format::template unpack<float4>(row, first + 4 * i);
  }
};

struct FormatF32 : Unpack16<FormatF32> {
  static ulong row_bytes(uint k) { return 4ul * k; }

  template <typename W>
  static W unpack(device const uchar* row, uint first) {
    return load_floats<W>((device const float*)row + first);
  }
};

struct FormatF16 : Unpack16<FormatF16> {
  static ulong row_bytes(uint k) { return 2ul * k; }

  template <typename W>
  static W unpack(device const uchar* row, uint first) {
    return load_halves<W>((device const half*)row + first);
  }
};

// The upper half of a float.
struct FormatBF16 : Unpack16<FormatBF16> {
  static ulong row_bytes(uint k) { return 2ul * k; }

  template <typename W>
  static W unpack(device const uchar* row, uint first) {
    return load_bfloats<W>((device const ushort*)row + first);
  }
};

// GGUF Q8_0: a half scale and 32 int8, 34 bytes: only 2-byte aligned. The product of an 11-bit and
// an 8-bit significand fits a float, so unpacking does not round.
struct FormatQ8_0 : Unpack16<FormatQ8_0> {
  enum : uint { kQblockBytes = 34 };

  static ulong row_bytes(uint k) { return ulong(k / kQblock) * kQblockBytes; }

  template <typename W>
  static W unpack(device const uchar* row, uint first) {
    device const uchar* qblock = row + first / kQblock * kQblockBytes;
    return load_chars<W>(qblock + 2 + first % kQblock) * float(*(device const half*)qblock);
  }
};
