// Column-major small matrices of one thread. (simdgroup_matrix.h has those that a simdgroup
// shares.)
#pragma once
#include "vec.h"

namespace metal {

template <class T, int C, int R>
struct matrix {
  vec<T, R> columns[C];
  matrix() = default;
  MSL_INLINE explicit matrix(T diagonal) {
    for (int c = 0; c < C; ++c) {
      columns[c] = vec<T, R>((T)0);
      if (c < R) columns[c].lanes[c] = diagonal;
    }
  }
  template <class... Columns, enable_if_t<sizeof...(Columns) == C && (C > 1) &&
                                              (is_same_v<Columns, vec<T, R>> && ...),
                                          int> = 0>
  MSL_INLINE matrix(Columns... each) {
    int c = 0;
    ((columns[c++] = each), ...);
  }
  MSL_INLINE vec<T, R>& operator[](int c) { return columns[c]; }
  MSL_INLINE const vec<T, R>& operator[](int c) const { return columns[c]; }
};

template <class T, int C, int R>
MSL_INLINE matrix<T, C, R> operator+(matrix<T, C, R> a, matrix<T, C, R> b) {
  for (int c = 0; c < C; ++c) a.columns[c] += b.columns[c];
  return a;
}
template <class T, int C, int R>
MSL_INLINE matrix<T, C, R> operator*(matrix<T, C, R> m, detail::as_is<T> s) {
  for (int c = 0; c < C; ++c) m.columns[c] *= s;
  return m;
}
template <class T, int C, int R>
MSL_INLINE vec<T, R> operator*(matrix<T, C, R> m, vec<T, C> x) {
  vec<T, R> result((T)0);
  for (int c = 0; c < C; ++c) result += m.columns[c] * (T)x.lanes[c];
  return result;
}
template <class T, int C, int R, int K>
MSL_INLINE matrix<T, K, R> operator*(matrix<T, C, R> a, matrix<T, K, C> b) {
  matrix<T, K, R> result;
  for (int k = 0; k < K; ++k) result.columns[k] = a * b.columns[k];
  return result;
}
template <class T, int C, int R>
MSL_INLINE matrix<T, R, C> transpose(matrix<T, C, R> m) {
  matrix<T, R, C> result;
  for (int c = 0; c < C; ++c)
    for (int r = 0; r < R; ++r) result.columns[r].lanes[c] = m.columns[c].lanes[r];
  return result;
}

#define MSL_MATRIX_NAMES(T)                                                                        \
  typedef matrix<T, 2, 2> T##2x2;                                                                  \
  typedef matrix<T, 2, 4> T##2x4;                                                                  \
  typedef matrix<T, 3, 3> T##3x3;                                                                  \
  typedef matrix<T, 4, 2> T##4x2;                                                                  \
  typedef matrix<T, 4, 4> T##4x4;
MSL_MATRIX_NAMES(float)
MSL_MATRIX_NAMES(half)
#undef MSL_MATRIX_NAMES

}  // namespace metal
