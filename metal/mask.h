// Which ids of a row are allowed at all: SampleArgs.mask and the array of masks (kernel_args.h).
#pragma once
#include <metal_stdlib>

#include "kernel_args.h"

struct Mask {
  device const uint* words;
  bool is_set;
};

inline Mask mask_of(device const uint* masks, device const SampleArgs& sample,
                    constant SampleScanArgs& args) {
  Mask mask;
  mask.is_set = sample.mask != MTLQWEN_NO_INDEX;
  mask.words = mask.is_set ? masks + ulong(sample.mask) * args.mask_words : masks;
  return mask;
}

inline bool allows(Mask mask, uint id) {
  return !mask.is_set || (mask.words[id / 32] >> id % 32 & 1u) != 0;
}
