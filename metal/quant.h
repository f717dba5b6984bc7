// Weight formats. Each is a struct with the same two members, and a kernel is a template over it:
//   row_bytes(k)        bytes of a row of k elements (k is a multiple of 32)
//   unpack(row, chunk)  elements 16 * chunk .. 16 * chunk + 15 of that row as float, exactly
// Loads are as wide as the format's alignment allows (csrc/io/format.hpp, FormatInfo::alignment).
#pragma once
#include <metal_stdlib>
using namespace metal;

enum : uint { kChunk = 16 };

struct Chunk {
  float value[kChunk];

  void set4(uint first, float4 values) thread {
    for (uint i = 0; i < 4; i++) value[first + i] = values[i];
  }
};

struct FormatF32 {
  static ulong row_bytes(uint k) { return 4ul * k; }

  static Chunk unpack(device const uchar* row, uint chunk) {
    device const float4* words = (device const float4*)row + 4 * chunk;
    Chunk out;
    for (uint i = 0; i < 4; i++) out.set4(4 * i, words[i]);
    return out;
  }
};

struct FormatF16 {
  static ulong row_bytes(uint k) { return 2ul * k; }

  static Chunk unpack(device const uchar* row, uint chunk) {
    device const half4* words = (device const half4*)row + 4 * chunk;
    Chunk out;
    for (uint i = 0; i < 4; i++) out.set4(4 * i, float4(words[i]));
    return out;
  }
};

// The upper half of a float.
struct FormatBF16 {
  static ulong row_bytes(uint k) { return 2ul * k; }

  static Chunk unpack(device const uchar* row, uint chunk) {
    device const ushort4* words = (device const ushort4*)row + 4 * chunk;
    Chunk out;
    for (uint i = 0; i < 4; i++) out.set4(4 * i, as_type<float4>(uint4(words[i]) << 16));
    return out;
  }
};

// GGUF Q8_0: qblocks of 32 elements, a half scale and 32 int8, 34 bytes: only 2-byte aligned. The
// product of an 11-bit and an 8-bit significand fits a float, so unpacking does not round.
struct FormatQ8_0 {
  enum : uint { kQblock = 32, kQblockBytes = 34 };

  static ulong row_bytes(uint k) { return ulong(k / kQblock) * kQblockBytes; }

  static Chunk unpack(device const uchar* row, uint chunk) {
    const uint half_qblock = chunk % 2;
    device const uchar* qblock = row + chunk / 2 * kQblockBytes;
    const float scale = float(*(device const half*)qblock);
    device const packed_ushort4* words =
        (device const packed_ushort4*)(qblock + 2 + half_qblock * kChunk);
    Chunk out;
    for (uint i = 0; i < 2; i++) {
      const ushort4 word = ushort4(words[i]);
      out.set4(8 * i, scale * float4(as_type<char4>(word.xy)));
      out.set4(8 * i + 4, scale * float4(as_type<char4>(word.zw)));
    }
    return out;
  }
};
