// vec<T, N>: a class around one compiler vector. A swizzle is a property (-fdeclspec) whose getter
// returns a real vec, so that templates deduce it. The rewriter defines MSL_SWIZZLES_N(T) as the
// list of those that the kernel file uses.
#pragma once
#include "traits.h"

#ifndef MSL_SWIZZLES_2
#define MSL_SWIZZLES_2
#define MSL_SWIZZLES_3
#define MSL_SWIZZLES_4
#endif

namespace metal {

template <class T, int N>
struct vec;
template <class T, int N>
struct packed_vec;

namespace detail {
template <class T>
constexpr int components = is_scalar<T> ? 1 : 0;
template <class T, int N>
constexpr int components<vec<T, N>> = N;
template <class T, int N>
constexpr int components<packed_vec<T, N>> = N;

// A vector of bool would be packed into bits; ours has one byte for each component, as Metal's.
template <class T>
using element = conditional_t<is_same_v<T, bool>, uchar, T>;

// The compiler cannot convert between the two 16-bit formats directly.
template <class From, class To>
constexpr bool goes_through_float =
    (is_same_v<From, bfloat> && sizeof(To) == 2) || (is_same_v<To, bfloat> && sizeof(From) == 2);

template <class To, class From>
MSL_INLINE constexpr To convert(From value) {
  if constexpr (goes_through_float<From, To>)
    return (To)(float)value;
  else
    return (To)value;
}
}  // namespace detail

#define MSL_GET_1(i0) (T) lanes[i0]
#define MSL_GET_2(i0, i1) vec<T, 2>(MSL_GET_1(i0), MSL_GET_1(i1))
#define MSL_GET_3(i0, i1, i2) vec<T, 3>(MSL_GET_1(i0), MSL_GET_1(i1), MSL_GET_1(i2))
#define MSL_GET_4(i0, i1, i2, i3)                                                                  \
  vec<T, 4>(MSL_GET_1(i0), MSL_GET_1(i1), MSL_GET_1(i2), MSL_GET_1(i3))
#define MSL_PUT_1(i0) lanes[i0] = a
#define MSL_PUT_2(i0, i1) (lanes[i0] = a.lanes[0], lanes[i1] = a.lanes[1])
#define MSL_PUT_3(i0, i1, i2) (MSL_PUT_2(i0, i1), lanes[i2] = a.lanes[2])
#define MSL_PUT_4(i0, i1, i2, i3) (MSL_PUT_3(i0, i1, i2), lanes[i3] = a.lanes[3])
#define MSL_SWIZZLE_TYPE_1 T
#define MSL_SWIZZLE_TYPE_2 vec<T, 2>
#define MSL_SWIZZLE_TYPE_3 vec<T, 3>
#define MSL_SWIZZLE_TYPE_4 vec<T, 4>

// A swizzle that repeats a component can only be read.
#define MSL_SWIZZLE_READ(name, n, ...)                                                             \
  MSL_INLINE MSL_SWIZZLE_TYPE_##n get_##name() const { return MSL_GET_##n(__VA_ARGS__); }          \
  __declspec(property(get = get_##name)) MSL_SWIZZLE_TYPE_##n name;
#define MSL_SWIZZLE(name, n, ...)                                                                  \
  MSL_INLINE MSL_SWIZZLE_TYPE_##n get_##name() const { return MSL_GET_##n(__VA_ARGS__); }          \
  MSL_INLINE void put_##name(MSL_SWIZZLE_TYPE_##n a) { MSL_PUT_##n(__VA_ARGS__); }                 \
  __declspec(property(get = get_##name, put = put_##name)) MSL_SWIZZLE_TYPE_##n name;

#define MSL_VEC_MEMBERS(N)                                                                         \
  typedef detail::element<T> Element;                                                              \
  typedef Element Lanes __attribute__((ext_vector_type(N)));                                       \
  Lanes lanes;                                                                                     \
  vec() = default;                                                                                 \
  template <class U, enable_if_t<detail::is_scalar<U>, int> = 0>                                   \
  MSL_INLINE vec(U all) {                                                                          \
    lanes = Lanes((Element)detail::convert<T>(all));                                               \
  }                                                                                                \
  template <class U, enable_if_t<!is_same_v<U, T>, int> = 0>                                       \
  MSL_INLINE explicit vec(vec<U, N> other) {                                                       \
    for (int i = 0; i < N; ++i) lanes[i] = (Element)detail::convert<T>((U)other.lanes[i]);         \
  }                                                                                                \
  template <class U, enable_if_t<!is_same_v<U, T>, int> = 0>                                       \
  MSL_INLINE explicit vec(packed_vec<U, N> other) {                                                \
    for (int i = 0; i < N; ++i) lanes[i] = (Element)detail::convert<T>(other.elements[i]);         \
  }                                                                                                \
  template <class A, class B, class... More,                                                       \
            enable_if_t<(detail::components<A> > 0) && (detail::components<B> > 0) &&              \
                            detail::components<A> + detail::components<B> +                        \
                                    (0 + ... + detail::components<More>) ==                        \
                                N,                                                                 \
                        int> = 0>                                                                  \
  MSL_INLINE vec(A a, B b, More... more) {                                                         \
    int i = 0;                                                                                     \
    place(i, a);                                                                                   \
    place(i, b);                                                                                   \
    (place(i, more), ...);                                                                         \
  }                                                                                                \
  template <class U, enable_if_t<detail::is_scalar<U>, int> = 0>                                   \
  MSL_INLINE void place(int& i, U value) {                                                         \
    lanes[i++] = (Element)detail::convert<T>(value);                                               \
  }                                                                                                \
  template <class U, int M>                                                                        \
  MSL_INLINE void place(int& i, vec<U, M> value) {                                                 \
    for (int k = 0; k < M; ++k) lanes[i++] = (Element)detail::convert<T>((U)value.lanes[k]);       \
  }                                                                                                \
  template <class U, int M>                                                                        \
  MSL_INLINE void place(int& i, packed_vec<U, M> value) {                                          \
    for (int k = 0; k < M; ++k) lanes[i++] = (Element)detail::convert<T>(value.elements[k]);       \
  }                                                                                                \
  MSL_INLINE T& operator[](int i) { return ((T*)&lanes)[i]; }                                      \
  MSL_INLINE const T& operator[](int i) const { return ((const T*)&lanes)[i]; }                    \
  MSL_SWIZZLES_##N

template <class T>
struct vec<T, 2> {
  MSL_VEC_MEMBERS(2)
};
template <class T>
struct vec<T, 3> {
  MSL_VEC_MEMBERS(3)
};
template <class T>
struct vec<T, 4> {
  MSL_VEC_MEMBERS(4)
};

namespace detail {
template <class T, int N>
MSL_INLINE vec<T, N> from_lanes(typename vec<T, N>::Lanes lanes) {
  vec<T, N> result;
  result.lanes = lanes;
  return result;
}
}  // namespace detail

// vec op vec of one type, and vec op scalar, where the scalar becomes the element type.
#define MSL_BINARY(op)                                                                             \
  template <class T, int N>                                                                        \
  MSL_INLINE vec<T, N> operator op(vec<T, N> a, vec<T, N> b) {                                     \
    return detail::from_lanes<T, N>(a.lanes op b.lanes);                                           \
  }                                                                                                \
  template <class T, int N, class U, enable_if_t<detail::is_scalar<U>, int> = 0>                   \
  MSL_INLINE vec<T, N> operator op(vec<T, N> a, U b) {                                             \
    return a op vec<T, N>(b);                                                                      \
  }                                                                                                \
  template <class T, int N, class U, enable_if_t<detail::is_scalar<U>, int> = 0>                   \
  MSL_INLINE vec<T, N> operator op(U a, vec<T, N> b) {                                             \
    return vec<T, N>(a) op b;                                                                      \
  }                                                                                                \
  template <class T, int N>                                                                        \
  MSL_INLINE vec<T, N>& operator op## = (vec<T, N> & a, detail::as_is<vec<T, N>> b) {              \
    a.lanes = a.lanes op b.lanes;                                                                  \
    return a;                                                                                      \
  }
MSL_BINARY(+)
MSL_BINARY(-)
MSL_BINARY(*)
MSL_BINARY(/)
MSL_BINARY(%)
MSL_BINARY(&)
MSL_BINARY(|)
MSL_BINARY(^)
MSL_BINARY(<<)
MSL_BINARY(>>)
#undef MSL_BINARY

#define MSL_COMPARE(op)                                                                            \
  template <class T, int N>                                                                        \
  MSL_INLINE vec<bool, N> operator op(vec<T, N> a, vec<T, N> b) {                                  \
    vec<bool, N> result;                                                                           \
    for (int i = 0; i < N; ++i) result.lanes[i] = (T)a.lanes[i] op(T) b.lanes[i];                  \
    return result;                                                                                 \
  }                                                                                                \
  template <class T, int N, class U, enable_if_t<detail::is_scalar<U>, int> = 0>                   \
  MSL_INLINE vec<bool, N> operator op(vec<T, N> a, U b) {                                          \
    return a op vec<T, N>(b);                                                                      \
  }                                                                                                \
  template <class T, int N, class U, enable_if_t<detail::is_scalar<U>, int> = 0>                   \
  MSL_INLINE vec<bool, N> operator op(U a, vec<T, N> b) {                                          \
    return vec<T, N>(a) op b;                                                                      \
  }
MSL_COMPARE(<)
MSL_COMPARE(>)
MSL_COMPARE(<=)
MSL_COMPARE(>=)
MSL_COMPARE(==)
MSL_COMPARE(!=)
MSL_COMPARE(&&)
MSL_COMPARE(||)
#undef MSL_COMPARE

template <class T, int N>
MSL_INLINE vec<T, N> operator-(vec<T, N> a) {
  return detail::from_lanes<T, N>(-a.lanes);
}
template <class T, int N>
MSL_INLINE vec<T, N> operator+(vec<T, N> a) {
  return a;
}
template <class T, int N>
MSL_INLINE vec<T, N> operator~(vec<T, N> a) {
  return detail::from_lanes<T, N>(~a.lanes);
}
template <int N>
MSL_INLINE vec<bool, N> operator!(vec<bool, N> a) {
  return a == vec<bool, N>(false);
}

// Elements with the alignment of T.
template <class T, int N>
struct packed_vec {
  T elements[N];
  packed_vec() = default;
  MSL_INLINE packed_vec(vec<T, N> other) {
    for (int i = 0; i < N; ++i) elements[i] = other.lanes[i];
  }
  MSL_INLINE operator vec<T, N>() const {
    vec<T, N> result;
    for (int i = 0; i < N; ++i) result.lanes[i] = elements[i];
    return result;
  }
  MSL_INLINE T& operator[](int i) { return elements[i]; }
  MSL_INLINE const T& operator[](int i) const { return elements[i]; }
};

template <class To, class From>
MSL_INLINE To as_type(From value) {
  static_assert(sizeof(To) == sizeof(From), "as_type needs two types of one size");
  return __builtin_bit_cast(To, value);
}

#define MSL_VEC_NAMES(T)                                                                           \
  typedef vec<T, 2> T##2;                                                                          \
  typedef vec<T, 3> T##3;                                                                          \
  typedef vec<T, 4> T##4;                                                                          \
  typedef packed_vec<T, 2> packed_##T##2;                                                          \
  typedef packed_vec<T, 3> packed_##T##3;                                                          \
  typedef packed_vec<T, 4> packed_##T##4;
MSL_VEC_NAMES(bool)
MSL_VEC_NAMES(char)
MSL_VEC_NAMES(uchar)
MSL_VEC_NAMES(short)
MSL_VEC_NAMES(ushort)
MSL_VEC_NAMES(int)
MSL_VEC_NAMES(uint)
MSL_VEC_NAMES(long)
MSL_VEC_NAMES(ulong)
MSL_VEC_NAMES(half)
MSL_VEC_NAMES(bfloat)
MSL_VEC_NAMES(float)
#undef MSL_VEC_NAMES

}  // namespace metal
