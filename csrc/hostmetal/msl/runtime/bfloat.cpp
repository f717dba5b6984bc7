// The compiler's own name for rounding a float to bfloat. The support libraries of g++ 12 lack it.
#include <stdint.h>

extern "C" __bf16 __truncsfbf2(float value) {
  uint32_t bits;
  __builtin_memcpy(&bits, &value, sizeof bits);
  // To nearest, ties to even; a NaN stays one.
  const uint32_t rounded = bits + 0x7FFF + (bits >> 16 & 1);
  const uint16_t upper =
      (uint16_t)((bits & 0x7FFFFFFF) > 0x7F800000 ? bits >> 16 | 0x40 : rounded >> 16);
  return __builtin_bit_cast(__bf16, upper);
}
