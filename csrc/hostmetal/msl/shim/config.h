// What differs between the two ways to compile a kernel: for the CPU (plain C++), and strict (C++
// for OpenCL, checked only).
#pragma once

#define MSL_INLINE inline __attribute__((always_inline))

#ifdef MSL_STRICT
#pragma OPENCL EXTENSION cl_khr_fp16 : enable
#pragma OPENCL EXTENSION __cl_clang_function_pointers : enable
#define MSL_STATIC static constexpr __constant  // a static member needs an address space there
#else
#define MSL_STATIC static constexpr
typedef _Float16 half;
#endif

typedef __bf16 bfloat;
typedef unsigned char uchar;
typedef unsigned short ushort;
typedef unsigned int uint;
typedef unsigned long ulong;
typedef signed char int8_t;
typedef unsigned char uint8_t;
typedef short int16_t;
typedef unsigned short uint16_t;
typedef int int32_t;
typedef unsigned int uint32_t;
typedef long int64_t;
typedef unsigned long uint64_t;
typedef unsigned long size_t;
typedef long ptrdiff_t;
typedef unsigned long uintptr_t;
