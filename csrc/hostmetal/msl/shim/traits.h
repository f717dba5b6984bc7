// The type traits of <metal_stdlib>, and the few that the shim itself needs. No C++ library stands
// behind them.
#pragma once
#include "config.h"

namespace metal {

template <class T, T v>
struct integral_constant {
  MSL_STATIC T value = v;
  typedef T value_type;
  constexpr operator T() const { return v; }
};
template <bool b>
using bool_constant = integral_constant<bool, b>;
typedef bool_constant<true> true_type;
typedef bool_constant<false> false_type;

template <bool b, class T = void>
struct enable_if {};
template <class T>
struct enable_if<true, T> {
  typedef T type;
};
template <bool b, class T = void>
using enable_if_t = typename enable_if<b, T>::type;

template <bool b, class A, class B>
struct conditional {
  typedef A type;
};
template <class A, class B>
struct conditional<false, A, B> {
  typedef B type;
};
template <bool b, class A, class B>
using conditional_t = typename conditional<b, A, B>::type;

template <class A, class B>
struct is_same : false_type {};
template <class A>
struct is_same<A, A> : true_type {};
template <class A, class B>
constexpr bool is_same_v = is_same<A, B>{};

template <class T>
struct remove_reference {
  typedef T type;
};
template <class T>
struct remove_reference<T&> {
  typedef T type;
};
template <class T>
using remove_reference_t = typename remove_reference<T>::type;

template <class T>
struct remove_cv {
  typedef T type;
};
template <class T>
struct remove_cv<const T> {
  typedef T type;
};
template <class T>
struct remove_cv<volatile T> {
  typedef T type;
};
template <class T>
struct remove_cv<const volatile T> {
  typedef T type;
};
template <class T>
using remove_cv_t = typename remove_cv<T>::type;
template <class T>
using decay_t = remove_cv_t<remove_reference_t<T>>;

template <class T, class... List>
constexpr bool is_one_of = (is_same_v<T, List> || ...);

template <class T>
struct is_floating_point : bool_constant<is_one_of<remove_cv_t<T>, float, half, bfloat>> {};
template <class T>
struct is_unsigned : bool_constant<is_one_of<remove_cv_t<T>, bool, uchar, ushort, uint, ulong>> {};
template <class T>
struct is_integral : bool_constant<is_unsigned<T>{} ||
                                   is_one_of<remove_cv_t<T>, char, signed char, short, int, long>> {
};
template <class T>
struct is_arithmetic : bool_constant<is_integral<T>{} || is_floating_point<T>{}> {};
template <class T>
struct is_signed : bool_constant<is_arithmetic<T>{} && !is_unsigned<T>{}> {};

template <class T>
constexpr bool is_floating_point_v = is_floating_point<T>{};
template <class T>
constexpr bool is_integral_v = is_integral<T>{};
template <class T>
constexpr bool is_unsigned_v = is_unsigned<T>{};
template <class T>
constexpr bool is_signed_v = is_signed<T>{};
template <class T>
constexpr bool is_arithmetic_v = is_arithmetic<T>{};

template <class T>
struct make_unsigned {
  typedef conditional_t<
      sizeof(T) == 1, uchar,
      conditional_t<sizeof(T) == 2, ushort, conditional_t<sizeof(T) == 4, uint, ulong>>>
      type;
};
template <class T>
using make_unsigned_t = typename make_unsigned<T>::type;

namespace detail {
// A parameter of this type takes no part in template argument deduction.
template <class T>
using as_is = typename conditional<true, T, T>::type;
// What vec<> accepts as a scalar: the arithmetic types and enums.
template <class T>
constexpr bool is_scalar = is_arithmetic_v<T> || __is_enum(T);
}  // namespace detail

}  // namespace metal
