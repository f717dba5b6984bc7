#include "packed.h"

#include "kernel_args.h"

namespace mtlqwen::twins {

const PackedKernels& packed_kernels(uint32_t format) {
  switch (format) {
  case kPackedQ4_0:
    return kPackedKernelsQ4_0;
  case kPackedQ4_1:
    return kPackedKernelsQ4_1;
  case kPackedQ5_0:
    return kPackedKernelsQ5_0;
  case kPackedQ5_1:
    return kPackedKernelsQ5_1;
  case kPackedQ2_K:
    return kPackedKernelsQ2_K;
  case kPackedQ3_K:
    return kPackedKernelsQ3_K;
  case kPackedQ4_K:
    return kPackedKernelsQ4_K;
  case kPackedQ5_K:
    return kPackedKernelsQ5_K;
  case kPackedQ6_K:
    return kPackedKernelsQ6_K;
  case kPackedIQ4_NL:
    return kPackedKernelsIQ4_NL;
  case kPackedIQ4_XS:
    return kPackedKernelsIQ4_XS;
  case kPackedMXFP4:
    return kPackedKernelsMXFP4;
  case kPackedNVFP4:
    return kPackedKernelsNVFP4;
  case kPackedIQ1_S:
    return kPackedKernelsIQ1_S;
  case kPackedIQ1_M:
    return kPackedKernelsIQ1_M;
  case kPackedIQ2_XXS:
    return kPackedKernelsIQ2_XXS;
  case kPackedIQ2_XS:
    return kPackedKernelsIQ2_XS;
  case kPackedIQ2_S:
    return kPackedKernelsIQ2_S;
  case kPackedIQ3_XXS:
    return kPackedKernelsIQ3_XXS;
  case kPackedIQ3_S:
    return kPackedKernelsIQ3_S;
  default:
    __builtin_trap();
  }
}

}  // namespace mtlqwen::twins
