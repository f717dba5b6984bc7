// The formats of metal/packed.h for CPU vectors: what differs from one to the next, behind functions
// for many weights at a time. packed_*.cpp define them, linear_packed.cpp and embed.cpp call them.
#pragma once
#include "panel.h"

namespace mtlqwen::twins {

// Of one format. A qblock here is the format's own, of `elements` weights.
struct PackedKernels {
  uint32_t elements;
  uint32_t bytes;    // of a qblock
  uint32_t scales;   // of 32 elements: 1, or 2 where 16 share one
  uint32_t offsets;  // of 32 elements: 0, 1 or 2

  // sums[o] = the product of an int16 row of k elements with row o of n rows of weights.
  void (*multiply)(float* sums, const uint8_t* x, const uint8_t* weights, uint32_t k, uint32_t n);

  // Unpacks a qblock of 16 rows, `row_bytes` apart, into the panel from its qblock `at` on.
  void (*unpack_panel)(Panel& panel, uint32_t at, const uint8_t* qblock, uint64_t row_bytes);

  // Unpacks a qblock into `elements` floats.
  void (*unpack)(float* out, const uint8_t* qblock);

  [[nodiscard]] uint64_t row_bytes(uint32_t k) const { return uint64_t{k / elements} * bytes; }
};

extern const PackedKernels kPackedKernelsQ4_0, kPackedKernelsQ4_1, kPackedKernelsQ5_0,
    kPackedKernelsQ5_1, kPackedKernelsQ2_K, kPackedKernelsQ3_K, kPackedKernelsQ4_K,
    kPackedKernelsQ5_K, kPackedKernelsQ6_K, kPackedKernelsIQ4_NL, kPackedKernelsIQ4_XS,
    kPackedKernelsMXFP4, kPackedKernelsNVFP4, kPackedKernelsIQ1_S, kPackedKernelsIQ1_M,
    kPackedKernelsIQ2_XXS, kPackedKernelsIQ2_XS, kPackedKernelsIQ2_S, kPackedKernelsIQ3_XXS,
    kPackedKernelsIQ3_S;

// Of a PackedFormat.
const PackedKernels& packed_kernels(uint32_t format);

}  // namespace mtlqwen::twins
