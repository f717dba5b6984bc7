// Kernels that compute hashes in the place of a model: same names, buffers and grids as metal/, but
// all arithmetic is exact, modulo 2^32, in the bits of the floats and halves. Of a matrix only the first element is read: which matrix it is.
// What a token is computed from, every key, value and state of every earlier position, changes it.
// tests/engine/hash_oracle.py computes the same from one request alone.
#pragma once
#include <metal_stdlib>

#include "../../metal/kernel_args.h"
using namespace metal;

inline uint mix(uint a, uint b) {
  uint h = (a + 0x9E3779B9u) * 0x85EBCA77u ^ b;
  h = (h ^ h >> 15) * 0xC2B2AE3Du;
  return h ^ h >> 13;
}

// Odd, so that a factor loses no bit.
inline uint odd(uint x) { return x | 1u; }

// Of all elements, each in its place.
inline uint digest(device const uint* x, uint n) {
  uint sum = 0;
  for (uint i = 0; i < n; i++) sum += x[i] * odd(mix(i, n));
  return sum;
}

// Words of an int16 row (metal/int16.h).
inline uint int16_words(uint k) { return k / 32 * 19; }

// Stores the hashes of 32 elements as qblock number `qblock` of an int16 row: two to a word of
// quants, all of them in the words of the scale and of the sums.
inline void store_qblock(device uint* row, uint k, uint qblock, thread const uint* x) {
  uint all = 0;
  for (uint word = 0; word < 16; word++) {
    const uint sum = x[2 * word] * odd(mix(0, word)) + x[2 * word + 1] * odd(mix(1, word));
    row[16 * qblock + word] = sum;
    all += sum * odd(mix(word, 16));
  }
  row[k / 2 + qblock] = mix(all, qblock);
  for (uint part = 0; part < 2; part++) {
    row[k / 2 + k / 32 + 2 * qblock + part] = mix(all, k + 2 * qblock + part);
  }
}

inline uint row_position(uint row, device const QueryArgs& query) {
  return query.kv_valid + (row - query.first_row);
}
