// Rows in which a number stopped being finite: spoilt[row] is the first place (kernel_args.h) after which
// one was not, MTLQWEN_NO_INDEX while all were. The CPU sets it before a pass and reads it behind it.
#pragma once
#include <metal_stdlib>

#include "kernel_args.h"
using namespace metal;

// Threadgroups of one row may say so at once.
inline void note_spoilt(device atomic_uint* spoilt, uint row, uint place) {
  if (place == MTLQWEN_NO_INDEX) return;
  atomic_fetch_min_explicit(spoilt + row, place, memory_order_relaxed);
}
