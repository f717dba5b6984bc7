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

inline uint row_position(uint row, device const QueryArgs& query) {
  return query.kv_valid + (row - query.first_row);
}
