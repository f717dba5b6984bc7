// What stands behind <metal_stdlib> when a kernel is only checked, as C++ for OpenCL: four address
// spaces that do not convert into each other, but do convert to the generic one, which the members
// of vec and of structs use. Nothing here has a body.
#pragma once
#define MSL_STRICT 1
#include "constants.h"
#include "floating.h"
#include "integer.h"
#include "matrix.h"
#include "strict_simd.h"

#define METAL_FUNC inline __attribute__((always_inline))

// Where the arrays of threadgroup memory come from. Never defined.
__local void* msl_threadgroup_memory();

#define MSL_THREADGROUP_ARRAY(type, name, dims, previous_end)                                      \
  typedef type name##_type dims;                                                                   \
  constexpr uint name##_end = ((previous_end + 63) & ~63u) + (uint)sizeof(name##_type);            \
  static_assert(name##_end <= 32768, "threadgroup memory of a kernel is at most 32768 bytes");     \
  __local name##_type& name = *(__local name##_type*)msl_threadgroup_memory();
#define MSL_TYPE(...) __VA_ARGS__

#define device __attribute__((opencl_global_device))
#define constant __attribute__((opencl_global_host)) const
#define threadgroup __local
#define thread __private
