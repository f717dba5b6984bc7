// Sixteen numbers at once: one register of AVX-512, two of AVX2, four of NEON. The compiler splits
// them where the CPU has less.
#pragma once
#include <stdint.h>

#define MTLQWEN_WIDE(NAME, TYPE, ALIGNMENT)                                                        \
  typedef TYPE NAME __attribute__((ext_vector_type(16), aligned(ALIGNMENT)))
// AVX-512 builds split vectors of 512 bits unless a function asks for them.
#define MTLQWEN_INLINE inline __attribute__((always_inline, min_vector_width(512)))

namespace mtlqwen::twins {

MTLQWEN_WIDE(Wide, float, 64);
MTLQWEN_WIDE(WideInts, int32_t, 64);
MTLQWEN_WIDE(LooseFloats, float, 4);
MTLQWEN_WIDE(LooseHalves, _Float16, 2);
MTLQWEN_WIDE(LooseShorts, uint16_t, 2);
MTLQWEN_WIDE(LooseChars, int8_t, 1);

constexpr uint32_t kWide = 16;

MTLQWEN_INLINE Wide load(const float* from) { return *reinterpret_cast<const LooseFloats*>(from); }
MTLQWEN_INLINE Wide load(const _Float16* from) {
  return __builtin_convertvector(*reinterpret_cast<const LooseHalves*>(from), Wide);
}
MTLQWEN_INLINE void store(float* to, Wide a) { *reinterpret_cast<LooseFloats*>(to) = a; }

MTLQWEN_INLINE Wide multiply_add(Wide a, Wide b, Wide c) {
  return __builtin_elementwise_fma(a, b, c);
}

// The sum of the elements: halves are added until one is left.
MTLQWEN_INLINE float fold(Wide a) {
  for (uint32_t count = 8; count > 0; count /= 2) {
    for (uint32_t i = 0; i < count; i++) a[i] += a[i + count];
  }
  return a[0];
}

// Where b is larger b, else a: a NaN in b is passed over.
MTLQWEN_INLINE Wide larger(Wide a, Wide b) { return b > a ? b : a; }
MTLQWEN_INLINE WideInts larger(WideInts a, WideInts b) { return b > a ? b : a; }

// The largest element, of a vector without NaN. (__builtin_reduce_max takes them one by one.)
template <typename V>
MTLQWEN_INLINE auto largest(V a) {
  a = larger(a, a.s89abcdef01234567);
  a = larger(a, a.s4567012389abcdef);
  a = larger(a, a.s23016745ab89efcd);
  a = larger(a, a.s1032547698badcfe);
  return a[0];
}

}  // namespace mtlqwen::twins
