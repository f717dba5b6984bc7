// Floating-point functions. Scalars are plain overloads, so that mixed arguments resolve as they do
// in Metal; a half or bfloat argument is computed in float and rounded once.
#pragma once
#include "vec.h"

#define MSL_EACH_WIDTH(M, name, T) M(name, T, 2) M(name, T, 3) M(name, T, 4)
#define MSL_EACH_FLOAT_VEC(M, name)                                                                \
  MSL_EACH_WIDTH(M, name, float) MSL_EACH_WIDTH(M, name, half) MSL_EACH_WIDTH(M, name, bfloat)

#define MSL_UNARY_VEC(name, T, N)                                                                  \
  MSL_INLINE vec<T, N> name(vec<T, N> a) {                                                         \
    for (int i = 0; i < N; ++i) a.lanes[i] = name((T)a.lanes[i]);                                  \
    return a;                                                                                      \
  }
#define MSL_BINARY_VEC(name, T, N)                                                                 \
  MSL_INLINE vec<T, N> name(vec<T, N> a, vec<T, N> b) {                                            \
    for (int i = 0; i < N; ++i) a.lanes[i] = name((T)a.lanes[i], (T)b.lanes[i]);                   \
    return a;                                                                                      \
  }
#define MSL_UNARY(name, expression)                                                                \
  MSL_INLINE float name(float x) { return expression; }                                            \
  MSL_INLINE half name(half a) { return (half)name((float)a); }                                    \
  MSL_INLINE bfloat name(bfloat a) { return (bfloat)name((float)a); }                              \
  MSL_EACH_FLOAT_VEC(MSL_UNARY_VEC, name)
#define MSL_BINARY(name, expression)                                                               \
  MSL_INLINE float name(float x, float y) { return expression; }                                   \
  MSL_INLINE half name(half a, half b) { return (half)name((float)a, (float)b); }                  \
  MSL_INLINE bfloat name(bfloat a, bfloat b) { return (bfloat)name((float)a, (float)b); }          \
  MSL_EACH_FLOAT_VEC(MSL_BINARY_VEC, name)

// Metal has them three times: plain, precise:: and fast::. Here all three are the C library's.
#define MSL_TRANSCENDENTAL                                                                         \
  MSL_UNARY(exp, __builtin_expf(x))                                                                \
  MSL_UNARY(exp2, __builtin_exp2f(x))                                                              \
  MSL_UNARY(exp10, __builtin_powf(10.0f, x))                                                       \
  MSL_UNARY(log, __builtin_logf(x))                                                                \
  MSL_UNARY(log2, __builtin_log2f(x))                                                              \
  MSL_UNARY(log10, __builtin_log10f(x))                                                            \
  MSL_UNARY(sin, __builtin_sinf(x))                                                                \
  MSL_UNARY(cos, __builtin_cosf(x))                                                                \
  MSL_UNARY(tan, __builtin_tanf(x))                                                                \
  MSL_UNARY(asin, __builtin_asinf(x))                                                              \
  MSL_UNARY(acos, __builtin_acosf(x))                                                              \
  MSL_UNARY(atan, __builtin_atanf(x))                                                              \
  MSL_UNARY(sinh, __builtin_sinhf(x))                                                              \
  MSL_UNARY(cosh, __builtin_coshf(x))                                                              \
  MSL_UNARY(tanh, __builtin_tanhf(x))                                                              \
  MSL_UNARY(sqrt, __builtin_sqrtf(x))                                                              \
  MSL_UNARY(rsqrt, 1.0f / __builtin_sqrtf(x))                                                      \
  MSL_BINARY(pow, __builtin_powf(x, y))                                                            \
  MSL_BINARY(powr, __builtin_powf(x, y))                                                           \
  MSL_BINARY(atan2, __builtin_atan2f(x, y))                                                        \
  MSL_BINARY(fmod, __builtin_fmodf(x, y))                                                          \
  MSL_BINARY(divide, x / y)

namespace metal {

MSL_TRANSCENDENTAL
namespace precise {
MSL_TRANSCENDENTAL
}
namespace fast {
MSL_TRANSCENDENTAL
}

MSL_UNARY(fabs, __builtin_fabsf(x))
MSL_UNARY(floor, __builtin_floorf(x))
MSL_UNARY(ceil, __builtin_ceilf(x))
MSL_UNARY(trunc, __builtin_truncf(x))
MSL_UNARY(rint, __builtin_rintf(x))
MSL_UNARY(round, __builtin_roundf(x))
MSL_UNARY(fract, x - __builtin_floorf(x))
MSL_UNARY(saturate, __builtin_fminf(__builtin_fmaxf(x, 0.0f), 1.0f))
MSL_UNARY(sign, x > 0.0f ? 1.0f : x < 0.0f ? -1.0f : x == 0.0f ? x : 0.0f)
MSL_BINARY(fmax, __builtin_fmaxf(x, y))
MSL_BINARY(fmin, __builtin_fminf(x, y))
MSL_BINARY(fdim, x > y ? x - y : 0.0f)
MSL_BINARY(copysign, __builtin_copysignf(x, y))
MSL_BINARY(step, y < x ? 0.0f : 1.0f)

MSL_INLINE float fma(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
MSL_INLINE half fma(half a, half b, half c) {
  return (half)__builtin_fmaf((float)a, (float)b, (float)c);
}
MSL_INLINE bfloat fma(bfloat a, bfloat b, bfloat c) {
  return (bfloat)__builtin_fmaf((float)a, (float)b, (float)c);
}
template <class T, int N>
MSL_INLINE vec<T, N> fma(vec<T, N> a, vec<T, N> b, vec<T, N> c) {
  for (int i = 0; i < N; ++i) a.lanes[i] = fma((T)a.lanes[i], (T)b.lanes[i], (T)c.lanes[i]);
  return a;
}
MSL_INLINE float ldexp(float x, int exponent) { return __builtin_ldexpf(x, exponent); }

#define MSL_CLASSIFY(name, builtin)                                                                \
  MSL_INLINE bool name(float x) { return builtin(x); }                                             \
  MSL_INLINE bool name(half x) { return builtin((float)x); }                                       \
  MSL_INLINE bool name(bfloat x) { return builtin((float)x); }                                     \
  template <class T, int N>                                                                        \
  MSL_INLINE vec<bool, N> name(vec<T, N> a) {                                                      \
    vec<bool, N> result;                                                                           \
    for (int i = 0; i < N; ++i) result.lanes[i] = name((T)a.lanes[i]);                             \
    return result;                                                                                 \
  }
MSL_CLASSIFY(isnan, __builtin_isnan)
MSL_CLASSIFY(isinf, __builtin_isinf)
MSL_CLASSIFY(isfinite, __builtin_isfinite)
MSL_CLASSIFY(signbit, __builtin_signbit)
#undef MSL_CLASSIFY

template <int N>
MSL_INLINE bool any(vec<bool, N> a) {
  bool result = false;
  for (int i = 0; i < N; ++i) result = result || a.lanes[i];
  return result;
}
template <int N>
MSL_INLINE bool all(vec<bool, N> a) {
  bool result = true;
  for (int i = 0; i < N; ++i) result = result && a.lanes[i];
  return result;
}

template <class T, int N>
MSL_INLINE T dot(vec<T, N> a, vec<T, N> b) {
  T sum = a.lanes[0] * b.lanes[0];
  for (int i = 1; i < N; ++i) sum += a.lanes[i] * b.lanes[i];
  return sum;
}
template <class T, int N>
MSL_INLINE T length_squared(vec<T, N> a) {
  return dot(a, a);
}
template <class T, int N>
MSL_INLINE T length(vec<T, N> a) {
  return sqrt(dot(a, a));
}
template <class T, int N>
MSL_INLINE vec<T, N> normalize(vec<T, N> a) {
  return a * rsqrt(dot(a, a));
}
template <class T>
MSL_INLINE T mix(T a, T b, detail::as_is<T> t) {
  return a + (b - a) * t;
}

}  // namespace metal

#undef MSL_UNARY
#undef MSL_BINARY
#undef MSL_TRANSCENDENTAL
