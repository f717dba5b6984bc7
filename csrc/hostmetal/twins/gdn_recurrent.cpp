// gdn_recurrent: the state of a value row is read once and written once a bank, whatever the rows of
// the query: what a row adds to it is added while the products of the next row are taken. With one
// row that traffic is all the cost there is.
//
// A kept state is written past the caches: its lines would first be read, and the pass reads all
// weights before anyone needs it again. Against plain stores (bundled model, Zen 5, 32 MB of cache)
// a decode pass takes 2 % less with one query, 5 % with two, 7 % with eight.
//
// A query whose draft is verified keeps no state, and its last row adds nothing to one: what each row
// would add goes to the tape.
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
  float* delta;       // of the first value, on the tape; null where the query has none
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

// Writes the row's output, and delta where it is taped; returns delta.
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
  if (row.delta) *reinterpret_cast<LooseEight*>(row.delta) = delta;
  return delta;
}

// S of value row i from dim d on, after the row.
template <uint32_t kDim>
MTLQWEN_INLINE Wide updated(const float* from, const Row& row, Wide delta, uint32_t i, uint32_t d) {
  return after_row(load(from + i * kDim + d), row.gate[0], load(row.k + d), delta);
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

// Row t of the query, as the value rows from `value` on see it.
Row row_of(const DeltaRule& rule, float* tape, const QueryArgs& query, uint32_t t, uint32_t v_head,
           uint32_t value) {
  const GdnArgs& args = rule.args;
  const uint32_t k_head = key_head(v_head, args);
  const uint64_t index = query.first_row + t;
  const float* heads = rule.act + index * channels_of(args);
  const uint64_t head = index * args.n_v_heads + v_head;
  const uint32_t first_value = v_head * args.head_dim + value;
  float* kept = is_taped(query) ? tape + (query.first_tape + t) * args.tape_row_floats : nullptr;
  return {.q = heads + k_head * args.head_dim,
          .k = heads + (args.n_k_heads + k_head) * args.head_dim,
          .v = heads + 2 * args.n_k_heads * args.head_dim + first_value,
          .gate = rule.gates + head * 2,
          .out = rule.out + head * args.head_dim + value,
          .delta = kept ? kept + tape_delta(first_value, args) : nullptr};
}

// Eight value rows of one head.
struct Rows {
  const DeltaRule& rule;
  float* tape;
  const QueryArgs& query;
  uint32_t v_head;
  uint32_t value;  // the first

  [[nodiscard]] Row operator[](uint32_t t) const {
    return row_of(rule, tape, query, t, v_head, value);
  }
};

// Through rows t .. end - 1 of the query. `from`: S before row t. Passes what makes the state after
// them, as `at(i, d)`, to `keep`.
template <uint32_t kDim, class Keep>
MTLQWEN_INLINE void recur_to(uint32_t end, const Rows& rows, const float* from, uint32_t t,
                             float* between, const Keep& keep) {
  Row row = rows[t];
  Wide sums = products<kDim>(row.k, row.q,
                             [&](uint32_t i, uint32_t d) { return load(from + i * kDim + d); });
  for (++t; t < end; t++) {
    const Eight delta = put_out<kDim>(row, sums);
    const Row next = rows[t];
    sums = products<kDim>(next.k, next.q, [&](uint32_t i, uint32_t d) {
      const Wide s = updated<kDim>(from, row, delta[i], i, d);
      store(between + i * kDim + d, s);
      return s;
    });
    from = between;
    row = next;
  }
  const Eight delta = put_out<kDim>(row, sums);
  keep([&](uint32_t i, uint32_t d) { return updated<kDim>(from, row, delta[i], i, d); });
}

template <uint32_t kDim>
MTLQWEN_INLINE void recur(const Rows& rows) {
  alignas(kLine) float between[kValues * kDim];
  const DeltaRule& rule = rows.rule;
  const QueryArgs& query = rows.query;
  const float* from = kZeros;
  if (query.kv_valid != 0) from = rule.old_state(query, rows.v_head, rows.value);
  if (is_taped(query)) {
    return recur_to<kDim>(query.count, rows, from, 0, between, [](const auto& /*at*/) {});
  }
  uint32_t t = 0;
  for (uint32_t w = 0; w < query.n_writes; w++) {
    const StateWriteArgs& write = rule.writes[query.first_write + w];
    float* to = rule.new_state(write, rows.v_head, rows.value);
    recur_to<kDim>(write.rows, rows, from, t, between, [&](const auto& at) {
      if (write.rows == query.count) return put_state<kDim>(to, at);
      put_state<kDim>(to, [&](uint32_t i, uint32_t d) {
        const Wide s = at(i, d);
        store(between + i * kDim + d, s);
        return s;
      });
    });
    from = between;
    t = write.rows;
  }
}

// The decay of a head stands in the tape rows once.
void put_decays(const Rows& rows) {
  const GdnArgs& args = rows.rule.args;
  const QueryArgs& query = rows.query;
  for (uint32_t t = 0; t < query.count; t++) {
    rows.tape[(query.first_tape + t) * args.tape_row_floats + tape_decay(rows.v_head, args)] =
        rows[t].gate[0];
  }
}

template <uint32_t kDim>
int run_groups(const Dispatch& dispatch, uint64_t first, uint64_t count) {
  constexpr uint32_t kGroups = kDim / kValues;
  const DeltaRule rule(dispatch, 3);
  const int result = for_each_group(dispatch, first, count, [&](uint32_t x, uint32_t y) {
    const QueryArgs& query = rule.queries[y];
    if (query.count >= rule.args.chunk_rows) return;
    const Rows rows{.rule = rule,
                    .tape = dispatch.buffer<float>(2),
                    .query = query,
                    .v_head = x / kGroups,
                    .value = x % kGroups * kValues};
    recur<kDim>(rows);
    if (is_taped(query) && rows.value == 0) put_decays(rows);
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
  const bool is_wide = dispatch.args<mtlqwen::GdnArgs>(8).head_dim == 128;
  return (is_wide ? run_groups<128> : run_groups<64>)(dispatch, first, count);
}
