// gdn_recurrent: the state of a value row is read once and written once a bank, whatever the rows of
// the query: what a row adds to it is added while the products of the next row are taken. With one
// row that traffic is all the cost there is.
//
// A kept state is written past the caches: its lines would first be read, and the pass reads all
// weights before anyone needs it again. Against plain stores (bundled model, Zen 5, 32 MB of cache)
// a decode pass takes 2 % less with one query, 5 % with two, 7 % with eight.
//
// A row's bits do not depend on how many rows the pass has: every row takes the same operations in
// the same order, and a state kept in a bank is the state kept on the stack.
#include "gdn.h"
#include "lanes.h"
#include "twin.h"

namespace mtlqwen::twins {
namespace {

constexpr uint32_t kValues = 8;  // value rows of a threadgroup
#ifdef __AVX512F__
constexpr uint32_t kTogether = 8;  // value rows whose sums fit into registers
#else
constexpr uint32_t kTogether = 2;
#endif
constexpr uint32_t kLine = 64;  // bytes

typedef float Eight __attribute__((ext_vector_type(8)));
typedef float LooseEight __attribute__((ext_vector_type(8), aligned(4)));

struct Row {
  const float* q;
  const float* k;
  const float* v;     // of the first value
  const float* gate;  // decay, beta
  float* out;         // of the first value
};

alignas(kLine) constexpr float kZeros[kValues * 128] = {};

// Element i: S k of value row i, or S q of value row i - 8. `at(row, d)` gives S from dim d on.
template <uint32_t kDim, class At>
MTLQWEN_INLINE Wide products(const float* k, const float* q, const At& at) {
  Wide sums[2 * kValues];
#pragma unroll
  for (uint32_t first = 0; first < kValues; first += kTogether) {
    Wide sk[kTogether] = {};
    Wide sq[kTogether] = {};
    for (uint32_t d = 0; d < kDim; d += kWide) {
      const Wide key = load(k + d);
      const Wide query = load(q + d);
#pragma unroll
      for (uint32_t i = 0; i < kTogether; i++) {
        const Wide s = at(first + i, d);
        sk[i] = multiply_add(s, key, sk[i]);
        sq[i] = multiply_add(s, query, sq[i]);
      }
    }
#pragma unroll
    for (uint32_t i = 0; i < kTogether; i++) {
      sums[first + i] = sk[i];
      sums[kValues + first + i] = sq[i];
    }
  }
  return fold_rows(sums);
}

template <uint32_t kDim>
MTLQWEN_INLINE float dot(const float* a, const float* b) {
  Wide sum = 0.0f;
  for (uint32_t d = 0; d < kDim; d += kWide) sum = multiply_add(load(a + d), load(b + d), sum);
  return fold(sum);
}

// Writes the row's output; returns delta.
template <uint32_t kDim>
MTLQWEN_INLINE Eight put_out(const Row& row, Wide sums) {
  const Eight decay = row.gate[0];
  const Eight beta = row.gate[1];
  const Eight value = *reinterpret_cast<const LooseEight*>(row.v);
  const Eight sk = __builtin_shufflevector(sums, sums, 0, 1, 2, 3, 4, 5, 6, 7);
  const Eight sq = __builtin_shufflevector(sums, sums, 8, 9, 10, 11, 12, 13, 14, 15);
  const Eight delta = beta * __builtin_elementwise_fma(-decay, sk, value);
  const float kq = dot<kDim>(row.k, row.q);
  *reinterpret_cast<LooseEight*>(row.out) = __builtin_elementwise_fma(decay, sq, delta * kq);
  return delta;
}

// S of value row i from dim d on, after the row.
template <uint32_t kDim>
MTLQWEN_INLINE Wide updated(const float* from, const Row& row, Wide delta, uint32_t i, uint32_t d) {
  return multiply_add(load(row.k + d), delta, load(from + i * kDim + d) * row.gate[0]);
}

// A state into its bank, line after line: so it may pass by the caches. `at(row, d)` as above.
template <uint32_t kDim, class At>
MTLQWEN_INLINE void put_state(float* to, const At& at) {
  const bool is_aligned = reinterpret_cast<uintptr_t>(to) % kLine == 0;
#pragma unroll
  for (uint32_t i = 0; i < kValues; i++) {
#pragma unroll
    for (uint32_t d = 0; d < kDim; d += kWide) {
      const Wide s = at(i, d);
      if (is_aligned) {
        __builtin_nontemporal_store(s, reinterpret_cast<Wide*>(to + i * kDim + d));
      } else {
        store(to + i * kDim + d, s);
      }
    }
  }
}

// Row `index` of the pass, as the value rows from `value` on see it.
Row row_of(const DeltaRule& rule, uint32_t index, uint32_t v_head, uint32_t value) {
  const GdnArgs& args = rule.args;
  const uint32_t k_head = key_head(v_head, args);
  const float* heads = rule.act + uint64_t{index} * channels_of(args);
  const uint64_t head = uint64_t{index} * args.n_v_heads + v_head;
  return {.q = heads + k_head * args.head_dim,
          .k = heads + (args.n_k_heads + k_head) * args.head_dim,
          .v = heads + (2 * args.n_k_heads + v_head) * args.head_dim + value,
          .gate = rule.gates + head * 2,
          .out = rule.out + head * args.head_dim + value};
}

// Eight value rows of one head through the query's rows up to those of `write`, from row t on.
// `from`: S before row t. Leaves the state in `between`, too, where more rows follow.
template <uint32_t kDim>
MTLQWEN_INLINE void recur_to(const StateWriteArgs& write, const DeltaRule& rule,
                             const QueryArgs& query, uint32_t group, const float* from, uint32_t t,
                             float* between) {
  constexpr uint32_t kGroups = kDim / kValues;
  const uint32_t v_head = group / kGroups;
  const uint32_t value = group % kGroups * kValues;
  Row row = row_of(rule, query.first_row + t, v_head, value);
  Wide sums = products<kDim>(row.k, row.q,
                             [&](uint32_t i, uint32_t d) { return load(from + i * kDim + d); });
  for (++t; t < write.rows; t++) {
    const Eight delta = put_out<kDim>(row, sums);
    const Row next = row_of(rule, query.first_row + t, v_head, value);
    sums = products<kDim>(next.k, next.q, [&](uint32_t i, uint32_t d) {
      const Wide s = updated<kDim>(from, row, delta[i], i, d);
      store(between + i * kDim + d, s);
      return s;
    });
    from = between;
    row = next;
  }
  const Eight delta = put_out<kDim>(row, sums);
  float* to = rule.new_state(write, v_head, value);
  const auto last = [&](uint32_t i, uint32_t d) {
    return updated<kDim>(from, row, delta[i], i, d);
  };
  if (t == query.count) return put_state<kDim>(to, last);
  put_state<kDim>(to, [&](uint32_t i, uint32_t d) {
    const Wide s = last(i, d);
    store(between + i * kDim + d, s);
    return s;
  });
}

template <uint32_t kDim>
MTLQWEN_INLINE void recur(const DeltaRule& rule, const QueryArgs& query, uint32_t group) {
  constexpr uint32_t kGroups = kDim / kValues;
  alignas(kLine) float between[kValues * kDim];
  const float* from = kZeros;
  if (query.kv_valid != 0) from = rule.old_state(query, group / kGroups, group % kGroups * kValues);
  uint32_t t = 0;
  for (uint32_t w = 0; w < query.n_writes; w++) {
    const StateWriteArgs& write = rule.writes[query.first_write + w];
    recur_to<kDim>(write, rule, query, group, from, t, between);
    from = between;
    t = write.rows;
  }
}

template <uint32_t kDim>
int run_groups(const Dispatch& dispatch, uint64_t first, uint64_t count) {
  const DeltaRule rule(dispatch);
  const int result = for_each_group(dispatch, first, count, [&](uint32_t x, uint32_t y) {
    const QueryArgs& query = rule.queries[y];
    if (query.count < rule.args.chunk_rows) recur<kDim>(rule, query, x);
  });
#ifdef __x86_64__
  // What was written past the caches is seen before what the thread writes next.
  __builtin_ia32_sfence();
#endif
  return result;
}

}  // namespace
}  // namespace mtlqwen::twins

MTLQWEN_TWIN(gdn_recurrent) {
  using namespace mtlqwen::twins;
  const bool is_wide = dispatch.args<mtlqwen::GdnArgs>(7).head_dim == 128;
  return (is_wide ? run_groups<128> : run_groups<64>)(dispatch, first, count);
}
