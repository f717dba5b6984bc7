// 8x8 fragments of a matmul: the only place that knows how simdgroup_matrix spreads over the lanes
// of a simdgroup.
#pragma once
#include <metal_stdlib>
using namespace metal;

using Fragment = simdgroup_matrix<float, 8, 8>;

// (column, row) of the first of the two neighbouring elements that a lane holds; the second is one
// column further. Apple does not document it; MLX (mlx/backend/metal/kernels/steel/gemm/mma.h,
// get_coord) depends on it, too.
static ushort2 mat_coord(ushort lane) {
  const ushort quad = lane / 4;
  return ushort2((quad & 2) * 2 + (lane % 2) * 2, (quad & 4) + (lane / 2) % 4);
}

// The 8 x 8 elements at `in`, rows `stride` apart. Rows from n_rows on are not read and count as
// zero.
static void load_rows(thread Fragment& out, device const float* in, uint stride, uint n_rows,
                      ushort lane) {
  const ushort2 at = mat_coord(lane);
  float2 pair = float2(0.0f);
  if (at.y < n_rows) pair = *(device const float2*)(in + at.y * stride + at.x);
  out.thread_elements() = pair;
}

// Stores the elements of `in` that lie within n_rows x n_columns; adds them to `out` where
// `accumulate`.
static void store_within(thread Fragment& in, device float* out, uint stride, uint n_rows,
                         uint n_columns, bool accumulate, ushort lane) {
  const ushort2 at = mat_coord(lane);
  if (at.y >= n_rows) return;
  const float2 pair = in.thread_elements();
  device float* target = out + at.y * stride + at.x;
  for (ushort i = 0; i < 2; i++) {
    if (at.x + i < n_columns) target[i] = accumulate ? target[i] + pair[i] : pair[i];
  }
}
