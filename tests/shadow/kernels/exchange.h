#pragma once
#include <metal_stdlib>

// The element of the lane beside this one.
inline float beside(threadgroup const float* s, uint t) { return s[t ^ 1]; }
