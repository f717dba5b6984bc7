// Operations across the lanes of a simdgroup, and the barriers. Each lane leaves its value in the
// round's slots; the last to arrive combines them; afterwards every lane reads what it wants. The
// slots of a round stay readable until the next is complete.
#pragma once
#include "../runtime/fiber.h"
#include "../shadow/hooks.h"
#include "integer.h"

#define MSL_LINE uint line = __builtin_LINE()

namespace metal {

enum class mem_flags { mem_none = 0, mem_device = 1, mem_threadgroup = 2, mem_texture = 4 };
MSL_INLINE constexpr mem_flags operator|(mem_flags a, mem_flags b) {
  return (mem_flags)((int)a | (int)b);
}

MSL_INLINE void threadgroup_barrier(mem_flags flags, MSL_LINE) {
  msl::meet<true>(msl::make_site(line, msl::kThreadgroupBarrier), nullptr);
  msl::shadow_barrier(true, (uint)flags, line);
}
MSL_INLINE void simdgroup_barrier(mem_flags flags, MSL_LINE) {
  msl::meet(msl::make_site(line, msl::kSimdgroupBarrier), nullptr);
  msl::shadow_barrier(false, (uint)flags, line);
}

namespace detail {

// The tree of a butterfly over 16, 8, 4, 2, 1, result in slot 0. Lanes that are not there are left
// out.
template <class T, class Operation>
__attribute__((noinline)) void reduce(msl::Simdgroup& group) {
  T* values = (T*)group.slots;
  uint present = group.active;
  if (present == ~0u) {
#pragma unroll
    for (uint n = 16; n > 0; n /= 2)
      for (uint i = 0; i < n; ++i) values[i] = Operation::apply(values[i], values[i + n]);
    return;
  }
  for (uint n = 16; n > 0; n /= 2) {
    for (uint i = 0; i < n; ++i) {
      if ((present >> (i + n) & 1) == 0) continue;
      values[i] = present >> i & 1 ? Operation::apply(values[i], values[i + n]) : values[i + n];
      present |= 1u << i;
    }
  }
}

#define MSL_OPERATION(name, expression)                                                            \
  struct name {                                                                                    \
    template <class T>                                                                             \
    static MSL_INLINE T apply(T a, T b) {                                                          \
      return (T)(expression);                                                                      \
    }                                                                                              \
  };
MSL_OPERATION(Sum, a + b)
MSL_OPERATION(Product, a* b)
MSL_OPERATION(Max, max(a, b))
MSL_OPERATION(Min, min(a, b))
MSL_OPERATION(And, a& b)
MSL_OPERATION(Or, a | b)
MSL_OPERATION(Xor, a ^ b)
#undef MSL_OPERATION

// In place: slot l becomes the sum of the slots up to l, or before it.
template <class T, bool inclusive>
__attribute__((noinline)) void prefix_sum(msl::Simdgroup& group) {
  T* values = (T*)group.slots;
  T sum = (T)0;
  for (uint rest = group.active; rest != 0; rest &= rest - 1) {
    const uint lane = __builtin_ctz(rest);
    const T before = sum;
    sum = (T)(sum + values[lane]);
    values[lane] = inclusive ? sum : before;
  }
}

inline void ballot(msl::Simdgroup& group) {
  uint* values = (uint*)group.slots;
  uint mask = 0;
  for (uint rest = group.active; rest != 0; rest &= rest - 1) {
    const uint lane = __builtin_ctz(rest);
    mask |= (values[lane] & 1) << lane;
  }
  values[0] = mask;
}

MSL_INLINE uint lane_index() { return msl::current->lane; }

// Leaves `value`, waits, and returns the slots.
template <class T>
MSL_INLINE T* exchange(T value, uint site, void (*combine)(msl::Simdgroup&)) {
  static_assert(sizeof(T) <= msl::kSlotBytes && !is_same_v<T, bool>,
                "no such value in a simd function");
  const msl::Fiber* me = msl::current;
  T* slots = (T*)me->simdgroup->slots;
  slots[me->lane] = value;
  msl::meet(site, combine);
  return slots;
}

template <class T>
MSL_INLINE T from_lane(T value, uint lane, uint line) {
  const msl::Fiber* me = msl::current;
  const uint n = me->simdgroup->n_lanes;
  const T* slots = exchange(value, msl::make_site(line, msl::kShuffle), nullptr);
  return lane < n ? slots[lane] : value;  // a lane past the edge gives back one's own value
}

template <class Operation, class T>
MSL_INLINE T reduced(T value, uint line) {
  return *exchange(value, msl::make_site(line, msl::kReduce), reduce<T, Operation>);
}

}  // namespace detail

#define MSL_REDUCTION(name, Operation)                                                             \
  template <class T>                                                                               \
  MSL_INLINE T simd_##name(T value, MSL_LINE) {                                                    \
    return detail::reduced<detail::Operation>(value, line);                                        \
  }                                                                                                \
  template <class T>                                                                               \
  MSL_INLINE T quad_##name(T value, MSL_LINE) {                                                    \
    using Op = detail::Operation;                                                                  \
    const uint first = detail::lane_index() & ~3u;                                                 \
    const T* quad = detail::exchange(value, msl::make_site(line, msl::kShuffle), nullptr) + first; \
    return Op::apply(Op::apply(quad[0], quad[2]), Op::apply(quad[1], quad[3]));                    \
  }
MSL_REDUCTION(sum, Sum)
MSL_REDUCTION(product, Product)
MSL_REDUCTION(max, Max)
MSL_REDUCTION(min, Min)
MSL_REDUCTION(and, And)
MSL_REDUCTION(or, Or)
MSL_REDUCTION(xor, Xor)
#undef MSL_REDUCTION

// `lane` in the expression is the caller's, `n` the argument.
#define MSL_SHUFFLE(name, expression)                                                              \
  template <class T>                                                                               \
  MSL_INLINE T name(T value, ushort n, MSL_LINE) {                                                 \
    const uint lane = detail::lane_index();                                                        \
    (void)lane;                                                                                    \
    return detail::from_lane(value, expression, line);                                             \
  }
MSL_SHUFFLE(simd_shuffle, n)
MSL_SHUFFLE(simd_broadcast, n)
MSL_SHUFFLE(simd_shuffle_xor, lane ^ n)
MSL_SHUFFLE(simd_shuffle_up, lane - n)
MSL_SHUFFLE(simd_shuffle_down, lane + n)
MSL_SHUFFLE(simd_shuffle_rotate_up, (lane - n) % 32)
MSL_SHUFFLE(simd_shuffle_rotate_down, (lane + n) % 32)
MSL_SHUFFLE(quad_shuffle, (lane & ~3u) + n % 4)
MSL_SHUFFLE(quad_broadcast, (lane & ~3u) + n % 4)
MSL_SHUFFLE(quad_shuffle_xor, lane ^ n % 4)
#undef MSL_SHUFFLE

template <class T>
MSL_INLINE T simd_shuffle_and_fill_up(T value, T fill, ushort n, MSL_LINE) {
  const uint lane = detail::lane_index();
  const T moved = detail::from_lane(value, lane - n, line);
  const T filled = detail::from_lane(fill, (lane - n) % 32, line);
  return lane >= n ? moved : filled;
}
template <class T>
MSL_INLINE T simd_shuffle_and_fill_down(T value, T fill, ushort n, MSL_LINE) {
  const uint lane = detail::lane_index();
  const T moved = detail::from_lane(value, lane + n, line);
  const T filled = detail::from_lane(fill, (lane + n) % 32, line);
  return lane + n < 32 ? moved : filled;
}
template <class T>
MSL_INLINE T simd_broadcast_first(T value, MSL_LINE) {
  const uint first = __builtin_ctz(msl::current->simdgroup->active);
  return detail::from_lane(value, first, line);
}
template <class T>
MSL_INLINE T simd_prefix_inclusive_sum(T value, MSL_LINE) {
  const uint lane = detail::lane_index();
  return detail::exchange(value, msl::make_site(line, msl::kReduce),
                          detail::prefix_sum<T, true>)[lane];
}
template <class T>
MSL_INLINE T simd_prefix_exclusive_sum(T value, MSL_LINE) {
  const uint lane = detail::lane_index();
  return detail::exchange(value, msl::make_site(line, msl::kReduce),
                          detail::prefix_sum<T, false>)[lane];
}

struct simd_vote {
  typedef ulong vote_t;
  uint mask;
  MSL_INLINE explicit simd_vote(ulong votes = 0) : mask((uint)votes) {}
  MSL_INLINE explicit operator ulong() const { return mask; }
  MSL_INLINE bool all() const { return mask == ~0u; }
  MSL_INLINE bool any() const { return mask != 0; }
};
MSL_INLINE simd_vote simd_ballot(bool vote, MSL_LINE) {
  return simd_vote(
      *detail::exchange((uint)vote, msl::make_site(line, msl::kReduce), detail::ballot));
}
MSL_INLINE bool simd_any(bool vote, MSL_LINE) {
  return detail::reduced<detail::Or>((uint)vote, line) != 0;
}
MSL_INLINE bool simd_all(bool vote, MSL_LINE) {
  return detail::reduced<detail::And>((uint)vote, line) != 0;
}
MSL_INLINE bool simd_is_first() {
  return detail::lane_index() == (uint)__builtin_ctz(msl::current->simdgroup->active);
}

}  // namespace metal
