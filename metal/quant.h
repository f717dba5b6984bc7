// Weight formats. Each is a struct with the same two members, and a kernel is a template over it:
//   row_bytes(k)           bytes of a row of k elements (k is a multiple of 32)
//   unpack<W>(row, first)  as many elements as W holds, from `first` on, exactly; `first` is a
//                          multiple of that count
// Loads are as wide as the format's alignment allows (csrc/io/format.hpp, FormatInfo::alignment).
#pragma once
#include "wide.h"

enum : uint { kQblock = 32 };  // elements that share a scale; every k is a multiple of it

struct FormatF32 {
  static ulong row_bytes(uint k) { return 4ul * k; }

  template <typename W>
  static W unpack(device const uchar* row, uint first) {
    return load_floats<W>((device const float*)row + first);
  }
};

struct FormatF16 {
  static ulong row_bytes(uint k) { return 2ul * k; }

  template <typename W>
  static W unpack(device const uchar* row, uint first) {
    return load_halves<W>((device const half*)row + first);
  }
};

// The upper half of a float.
struct FormatBF16 {
  static ulong row_bytes(uint k) { return 2ul * k; }

  template <typename W>
  static W unpack(device const uchar* row, uint first) {
    return load_bfloats<W>((device const ushort*)row + first);
  }
};

// GGUF Q8_0: a half scale and 32 int8, 34 bytes: only 2-byte aligned. The product of an 11-bit and
// an 8-bit significand fits a float, so unpacking does not round.
struct FormatQ8_0 {
  enum : uint { kQblockBytes = 34 };

  static ulong row_bytes(uint k) { return ulong(k / kQblock) * kQblockBytes; }

  template <typename W>
  static W unpack(device const uchar* row, uint first) {
    device const uchar* qblock = row + first / kQblock * kQblockBytes;
    return load_chars<W>(qblock + 2 + first % kQblock) * float(*(device const half*)qblock);
  }
};
