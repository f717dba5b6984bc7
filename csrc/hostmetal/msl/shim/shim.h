// What stands behind <metal_stdlib> when a kernel is compiled for the CPU. The rewriter includes it
// at the top of every kernel file.
#pragma once
#include "atomic.h"
#include "constants.h"
#include "entry.h"
#include "floating.h"
#include "integer.h"
#include "matrix.h"
#include "simd.h"
#include "simdgroup_matrix.h"

#define METAL_FUNC inline __attribute__((always_inline))

// One address space on a CPU. The strict build has the four of Metal.
#define device
#define threadgroup
#define thread
#define constant const
