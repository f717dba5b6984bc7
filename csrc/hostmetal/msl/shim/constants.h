// Numeric limits and the named constants of <metal_stdlib>.
#pragma once
#include "traits.h"

#define MAXFLOAT 3.402823466e+38f
#define FLT_MAX 3.402823466e+38f
#define FLT_MIN 1.175494351e-38f
#define FLT_EPSILON 1.1920929e-07f
#define MAXHALF ((half)65504.0f)
#define HALF_MAX ((half)65504.0f)
#define HALF_MIN ((half)6.103515625e-05f)
#define INFINITY __builtin_inff()
#define NAN __builtin_nanf("")
#define HUGE_VALF __builtin_inff()
#define M_E_F 2.71828182845904523536f
#define M_LOG2E_F 1.44269504088896340736f
#define M_LN2_F 0.69314718055994530942f
#define M_LN10_F 2.30258509299404568402f
#define M_PI_F 3.14159265358979323846f
#define M_PI_2_F 1.57079632679489661923f
#define M_1_PI_F 0.31830988618379067154f
#define M_SQRT2_F 1.41421356237309504880f
#define M_SQRT1_2_F 0.70710678118654752440f
#define INT_MAX 2147483647
#define INT_MIN (-2147483647 - 1)
#define UINT_MAX 4294967295u

namespace metal {

template <class T>
struct numeric_limits;

#define MSL_FLOAT_LIMITS(T, smallest, largest, step, bits)                                         \
  template <>                                                                                      \
  struct numeric_limits<T> {                                                                       \
    MSL_STATIC bool is_integer = false;                                                            \
    MSL_STATIC bool is_signed = true;                                                              \
    MSL_STATIC int digits = bits;                                                                  \
    static constexpr T min() { return (T)smallest; }                                               \
    static constexpr T max() { return (T)largest; }                                                \
    static constexpr T lowest() { return (T) - largest; }                                          \
    static constexpr T epsilon() { return (T)step; }                                               \
    static constexpr T infinity() { return (T)__builtin_inff(); }                                  \
    static constexpr T quiet_NaN() { return (T)__builtin_nanf(""); }                               \
  };
MSL_FLOAT_LIMITS(float, FLT_MIN, FLT_MAX, FLT_EPSILON, 24)
MSL_FLOAT_LIMITS(half, 6.103515625e-05f, 65504.0f, 9.765625e-04f, 11)
MSL_FLOAT_LIMITS(bfloat, 1.175494351e-38f, 3.38953139e+38f, 0.0078125f, 8)
#undef MSL_FLOAT_LIMITS

#define MSL_INTEGER_LIMITS(T, smallest, largest, bits)                                             \
  template <>                                                                                      \
  struct numeric_limits<T> {                                                                       \
    MSL_STATIC bool is_integer = true;                                                             \
    MSL_STATIC bool is_signed = (smallest) < 0;                                                    \
    MSL_STATIC int digits = bits;                                                                  \
    static constexpr T min() { return smallest; }                                                  \
    static constexpr T max() { return largest; }                                                   \
    static constexpr T lowest() { return smallest; }                                               \
  };
MSL_INTEGER_LIMITS(char, -128, 127, 7)
MSL_INTEGER_LIMITS(uchar, 0, 255, 8)
MSL_INTEGER_LIMITS(short, -32768, 32767, 15)
MSL_INTEGER_LIMITS(ushort, 0, 65535, 16)
MSL_INTEGER_LIMITS(int, INT_MIN, INT_MAX, 31)
MSL_INTEGER_LIMITS(uint, 0, UINT_MAX, 32)
MSL_INTEGER_LIMITS(long, -9223372036854775807l - 1, 9223372036854775807l, 63)
MSL_INTEGER_LIMITS(ulong, 0, 18446744073709551615ul, 64)
#undef MSL_INTEGER_LIMITS

}  // namespace metal
