// Hands a kernel its arguments. The rewriter writes one signature struct for each kernel: what
// every parameter is.
#pragma once
#include "../runtime/worker.h"
#include "vec.h"

namespace msl {

enum ArgumentKind {
  kBuffer,
  kThreadgroup,
  kThreadPositionInGrid,
  kThreadPositionInThreadgroup,
  kThreadIndexInThreadgroup,
  kThreadgroupPositionInGrid,
  kThreadsPerGrid,
  kThreadsPerThreadgroup,
  kThreadgroupsPerGrid,
  kThreadIndexInSimdgroup,
  kSimdgroupIndexInThreadgroup,
  kThreadsPerSimdgroup,
  kSimdgroupsPerThreadgroup,
  kThreadIndexInQuadgroup,
  kQuadgroupIndexInThreadgroup,
};

struct Argument {
  ArgumentKind kind;
  int index;
};

inline __attribute__((always_inline)) Position multiply(Position a, const uint32_t* b) {
  return {a.x * b[0], a.y * b[1], a.z * b[2]};
}

template <ArgumentKind kind>
inline __attribute__((always_inline)) Position builtin(const Fiber& fiber) {
  const Worker& worker = *fiber.simdgroup->worker;
  const uint32_t* groups = worker.dispatch->groups;
  const uint32_t* threads = worker.threads;
  const Position& at = fiber.position;
  switch (kind) {
  case kThreadPositionInGrid: {
    const Position origin = multiply(worker.group, threads);
    return {origin.x + at.x, origin.y + at.y, origin.z + at.z};
  }
  case kThreadPositionInThreadgroup:
    return at;
  case kThreadIndexInThreadgroup:
    return {fiber.index, 0, 0};
  case kThreadgroupPositionInGrid:
    return worker.group;
  case kThreadsPerGrid:
    return multiply({groups[0], groups[1], groups[2]}, threads);
  case kThreadsPerThreadgroup:
    return {threads[0], threads[1], threads[2]};
  case kThreadgroupsPerGrid:
    return {groups[0], groups[1], groups[2]};
  case kThreadIndexInSimdgroup:
    return {fiber.lane, 0, 0};
  case kSimdgroupIndexInThreadgroup:
    return {fiber.simdgroup->index, 0, 0};
  case kThreadsPerSimdgroup:
    return {kLanes, 0, 0};
  case kSimdgroupsPerThreadgroup:
    return {worker.n_simdgroups, 0, 0};
  case kThreadIndexInQuadgroup:
    return {fiber.lane % 4, 0, 0};
  case kQuadgroupIndexInThreadgroup:
    return {fiber.index / 4, 0, 0};
  default:
    return {0, 0, 0};
  }
}

// The kernel's parameter type decides how an argument is passed: pointer, reference, scalar or
// vector.
template <class T>
struct Parameter {
  template <ArgumentKind kind, int>
  static inline __attribute__((always_inline)) T get(const Fiber& fiber) {
    return (T)builtin<kind>(fiber).x;
  }
};
template <class T, int N>
struct Parameter<metal::vec<T, N>> {
  template <ArgumentKind kind, int>
  static inline __attribute__((always_inline)) metal::vec<T, N> get(const Fiber& fiber) {
    const Position at = builtin<kind>(fiber);
    metal::vec<T, N> result;
    result.lanes[0] = (T)at.x;
    result.lanes[1] = (T)at.y;
    if constexpr (N > 2) result.lanes[2] = (T)at.z;
    return result;
  }
};
template <class T>
struct Parameter<T*> {
  template <ArgumentKind kind, int index>
  static inline __attribute__((always_inline)) T* get(const Fiber& fiber) {
    const Worker& worker = *fiber.simdgroup->worker;
    if constexpr (kind == kThreadgroup)
      return (T*)worker.threadgroup_args[index];
    else
      return (T*)worker.dispatch->buffers[index];
  }
};
template <class T>
struct Parameter<T&> {
  template <ArgumentKind kind, int index>
  static inline __attribute__((always_inline)) T& get(const Fiber& fiber) {
    return *Parameter<T*>::template get<kind, index>(fiber);
  }
};

template <int... indices>
struct Indices {};
template <class Signature, class Kernel>
struct Call;
template <class Signature, class... Parameters>
struct Call<Signature, void (*)(Parameters...)> {
  static_assert(sizeof...(Parameters) == Signature::count, "every parameter has been classified");
  template <void (*kernel)(Parameters...), int... i>
  static inline __attribute__((always_inline)) void run(const Fiber& fiber, Indices<i...>) {
    kernel(Parameter<metal::remove_cv_t<Parameters>>::template get<Signature::arguments[i].kind,
                                                                   Signature::arguments[i].index>(
        fiber)...);
  }
};
template <int n, int... i>
struct MakeIndices : MakeIndices<n - 1, n - 1, i...> {};
template <int... i>
struct MakeIndices<0, i...> {
  typedef Indices<i...> type;
};

template <class Signature, auto kernel>
inline __attribute__((always_inline)) void call(const Fiber& fiber) {
  Call<Signature, decltype(kernel)>::template run<kernel>(
      fiber, typename MakeIndices<Signature::count>::type());
}

// A function constant is read where it is used: it belongs to the pipeline, and several may run at
// once.
template <class T, int index>
inline __attribute__((always_inline)) T constant_value() {
  static_assert(index < MSL_MAX_CONSTANTS && sizeof(T) <= 8, "see abi.h");
  T value;
  __builtin_memcpy(&value, &dispatch->constants[index], sizeof value);
  return value;
}

// Threadgroup arrays of a kernel lie one behind the other in the arena; the rewriter chains the
// offsets.
constexpr uint32_t threadgroup_offset(uint32_t previous_end) {
  return (previous_end + kThreadgroupGap + 63) & ~63u;
}

template <class T>
inline __attribute__((always_inline)) T& threadgroup_array(uint32_t offset) {
  const Worker& worker = *current->simdgroup->worker;
  const uint32_t bytes = offset + (uint32_t)sizeof(T) + worker.dynamic_bytes;
  if (__builtin_expect(bytes > kArenaBytes, 0)) fail_threadgroup_bytes(bytes);
  shadow_array(offset, (uint32_t)sizeof(T));
  return *(T*)(worker.arena + offset);
}

}  // namespace msl

#define MSL_SIGNATURE(name, n, ...)                                                                \
  struct name {                                                                                    \
    static constexpr int count = n;                                                                \
    static constexpr ::msl::Argument arguments[n + 1] = {__VA_ARGS__};                             \
  };
#define MSL_ENTRY(symbol, signature, ...)                                                          \
  extern "C" void symbol(const ::msl::Fiber& fiber) { ::msl::call<signature, &__VA_ARGS__>(fiber); }
#define MSL_THREADGROUP_ARRAY(type, name, dims, previous_end)                                      \
  typedef type name##_type dims;                                                                   \
  constexpr unsigned name##_offset = ::msl::threadgroup_offset(previous_end);                      \
  constexpr unsigned name##_end = name##_offset + (unsigned)sizeof(name##_type);                   \
  name##_type& name = ::msl::threadgroup_array<name##_type>(name##_offset);
#define MSL_TYPE(...) __VA_ARGS__
