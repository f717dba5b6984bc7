// Sixteen vectors as a matrix of sixteen by sixteen.
#pragma once
#include "wide.h"

namespace mtlqwen::twins {

template <class T, T... kLane>
struct Lanes {};
using AllLanes = __make_integer_seq<Lanes, int, 16>;

// Swaps what a has in the lanes with bit kStep and what b has in the lanes without.
template <int kStep, int... kLane>
MTLQWEN_INLINE void exchange(Wide& a, Wide& b, Lanes<int, kLane...>) {
  const Wide low =
      __builtin_shufflevector(a, b, ((kLane & kStep) == 0 ? kLane : 16 + kLane - kStep)...);
  const Wide high =
      __builtin_shufflevector(a, b, ((kLane & kStep) == 0 ? kLane + kStep : 16 + kLane)...);
  a = low;
  b = high;
}

template <int kStep>
MTLQWEN_INLINE void transpose_step(Wide (&rows)[16]) {
#pragma unroll
  for (int i = 0; i < 16; i++) {
    if ((i & kStep) == 0) exchange<kStep>(rows[i], rows[i + kStep], AllLanes{});
  }
}

MTLQWEN_INLINE void transpose(Wide (&rows)[16]) {
  transpose_step<8>(rows);
  transpose_step<4>(rows);
  transpose_step<2>(rows);
  transpose_step<1>(rows);
}

template <int kStep>
MTLQWEN_INLINE void fold_step(Wide (&rows)[16]) {
#pragma unroll
  for (int i = 0; i < kStep; i++) {
    exchange<kStep>(rows[i], rows[i + kStep], AllLanes{});
    rows[i] += rows[i + kStep];
  }
}

// Element i is the sum of rows[i].
MTLQWEN_INLINE Wide fold_rows(Wide (&rows)[16]) {
  fold_step<8>(rows);
  fold_step<4>(rows);
  fold_step<2>(rows);
  fold_step<1>(rows);
  return rows[0];
}

}  // namespace mtlqwen::twins
