// gdn_chunk as products of small matrices: metal/gdn_chunk.metal has the formulas.
//
// The first threadgroup of a head does the work of them all: what the value dims of a head have in
// common, A and B, is made once. S stands transposed on the stack, (dk, value), so that every
// product has rows of 32 columns. Rows past the end of a block are zeros, with beta 0 and decay 1.
// A block ends where a state is kept.
#include "gdn.h"
#include "lanes.h"
#include "twin.h"

namespace mtlqwen::twins {
namespace {

constexpr uint32_t kRows = 32;     // of a block
constexpr uint32_t kColumns = 32;  // of a right matrix: rows of a block, values of a threadgroup
constexpr uint32_t kMaxDim = 128;
constexpr uint32_t kMaxGroups = kMaxDim / kColumns;  // threadgroups of a head
constexpr uint32_t kLine = 64;                       // bytes
#ifdef __AVX512F__
constexpr uint32_t kTile = 8;  // rows whose sums fit into registers
#else
constexpr uint32_t kTile = 2;
#endif

// What the threadgroups of a head share of one block. What belongs to q follows on `used` rows of
// what belongs to k.
struct Block {
  alignas(kLine) float rows[2 * kRows][kMaxDim];    // k, then q
  alignas(kLine) float columns[kMaxDim][kRows];     // k; only the first `used` mean something
  alignas(kLine) float mixed[2 * kRows][kColumns];  // -A, then B
  alignas(kLine) float last[kColumns];              // M[last]
  float beta[kRows];
  float decay[kRows];
  float fade[kRows];  // F
  uint32_t count;     // rows that the query has
  uint32_t used;      // count, rounded up to whole tiles
};

// What a threadgroup keeps between blocks.
struct State {
  alignas(kLine) float columns[kMaxDim][kColumns];  // (dk, value)
};

// out (rows, 32) = out * scale + left (rows, inner) * right (inner, 32), whole tiles of rows.
MTLQWEN_INLINE void multiply(float* out, float scale, const float* left, uint32_t left_stride,
                             const float* right, uint32_t rows, uint32_t inner) {
  for (uint32_t row = 0; row < rows; row += kTile) {
    Wide low[kTile];
    Wide high[kTile];
#pragma unroll
    for (uint32_t i = 0; i < kTile; i++) {
      low[i] = load(out + (row + i) * kColumns) * scale;
      high[i] = load(out + (row + i) * kColumns + kWide) * scale;
    }
    const float* factors = left + row * left_stride;
    for (uint32_t d = 0; d < inner; d++) {
      const Wide right_low = load(right + d * kColumns);
      const Wide right_high = load(right + d * kColumns + kWide);
#pragma unroll
      for (uint32_t i = 0; i < kTile; i++) {
        const Wide factor = factors[i * left_stride + d];
        low[i] = multiply_add(factor, right_low, low[i]);
        high[i] = multiply_add(factor, right_high, high[i]);
      }
    }
#pragma unroll
    for (uint32_t i = 0; i < kTile; i++) {
      store(out + (row + i) * kColumns, low[i]);
      store(out + (row + i) * kColumns + kWide, high[i]);
    }
  }
}

// to (columns, rows) = from (rows, columns) transposed; both counts are multiples of 16.
MTLQWEN_INLINE void transpose_matrix(float* to, uint32_t to_stride, const float* from,
                                     uint32_t from_stride, uint32_t rows, uint32_t columns) {
  for (uint32_t row = 0; row < rows; row += kWide) {
    for (uint32_t column = 0; column < columns; column += kWide) {
      Wide part[kWide];
#pragma unroll
      for (uint32_t i = 0; i < kWide; i++) part[i] = load(from + (row + i) * from_stride + column);
      transpose(part);
#pragma unroll
      for (uint32_t i = 0; i < kWide; i++) store(to + (column + i) * to_stride + row, part[i]);
    }
  }
}

void load_rows(Block& block, const DeltaRule& rule, uint32_t first_row, uint32_t count,
               uint32_t v_head) {
  const GdnArgs& args = rule.args;
  const uint32_t dim = args.head_dim;
  const uint64_t row_floats = channels_of(args);
  block.count = count;
  block.used = (count + kTile - 1) / kTile * kTile;
  const float* q = rule.act + first_row * row_floats + key_head(v_head, args) * dim;
  const float* k = q + args.n_k_heads * dim;
  for (uint32_t t = 0; t < block.used; t++) {
    if (t < count) {
      const float* gate = rule.gates + (uint64_t{first_row + t} * args.n_v_heads + v_head) * 2;
      block.decay[t] = gate[0];
      block.beta[t] = gate[1];
      __builtin_memcpy(block.rows[t], k + t * row_floats, dim * sizeof(float));
      __builtin_memcpy(block.rows[block.used + t], q + t * row_floats, dim * sizeof(float));
    } else {
      block.decay[t] = 1.0F;
      block.beta[t] = 0.0F;
      __builtin_memset(block.rows[t], 0, dim * sizeof(float));
      __builtin_memset(block.rows[block.used + t], 0, dim * sizeof(float));
    }
  }
  transpose_matrix(block.columns[0], kRows, block.rows[0], kMaxDim, kRows, dim);
}

// -A, B, F and M[last]; a row of M is the one before it times a decay.
MTLQWEN_INLINE void mix_rows(Block& block, uint32_t dim) {
  __builtin_memset(block.mixed, 0, sizeof block.mixed);
  multiply(block.mixed[0], 1.0F, block.rows[0], kMaxDim, block.columns[0], 2 * block.used, dim);
  const WideInts lanes = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
  Wide low = 0.0F;
  Wide high = 0.0F;
  float fade = 1.0F;
  for (uint32_t t = 0; t < block.used; t++) {
    const auto diagonal = static_cast<int32_t>(t);
    low *= block.decay[t];
    high *= block.decay[t];
    fade *= block.decay[t];
    block.fade[t] = fade;
    float* a = block.mixed[t];
    store(a, low * load(a) * -block.beta[t]);
    store(a + kWide, high * load(a + kWide) * -block.beta[t]);
    low = lanes == diagonal ? Wide(1.0F) : low;
    high = lanes + int32_t{kWide} == diagonal ? Wide(1.0F) : high;
    float* b = block.mixed[block.used + t];
    store(b, low * load(b));
    store(b + kWide, high * load(b + kWide));
  }
  store(block.last, low);
  store(block.last + kWide, high);
}

// Forward substitution in rows of 32 values, in place, and out += B delta: delta of a tile is final
// once the rows before the tile are taken off, then those within it.
MTLQWEN_INLINE void solve(float (*delta)[kColumns], float (*out)[kColumns], const Block& block) {
  for (uint32_t first = 0; first < block.used; first += kTile) {
    multiply(delta[first], 1.0F, block.mixed[first], kColumns, delta[0], kTile, first);
#pragma unroll
    for (uint32_t s = 0; s + 1 < kTile; s++) {
      const Wide low = load(delta[first + s]);
      const Wide high = load(delta[first + s] + kWide);
#pragma unroll
      for (uint32_t i = s + 1; i < kTile; i++) {
        const Wide factor = block.mixed[first + i][first + s];
        float* row = delta[first + i];
        store(row, multiply_add(factor, low, load(row)));
        store(row + kWide, multiply_add(factor, high, load(row + kWide)));
      }
    }
    multiply(out[first], 1.0F, block.mixed[block.used + first], kColumns, delta[0], kTile,
             first + kTile);
  }
}

// One block of one threadgroup. `v` and `out`: the first value's place in the block's first row.
MTLQWEN_INLINE void run_block(State& state, float* out, uint32_t out_stride, const float* v,
                              uint32_t v_stride, const Block& block, uint32_t dim) {
  alignas(kLine) float sums[2 * kRows][kColumns];  // S k, then S q
  float (*delta)[kColumns] = sums;
  float (*o)[kColumns] = sums + block.used;
  __builtin_memset(sums, 0, sizeof sums);
  multiply(sums[0], 1.0F, block.rows[0], kMaxDim, state.columns[0], 2 * block.used, dim);
  for (uint32_t t = 0; t < block.used; t++) {
    const float* values = v + uint64_t{t < block.count ? t : 0} * v_stride;
    for (uint32_t i = 0; i < kColumns; i += kWide) {
      const Wide forgotten =
          multiply_add(-load(delta[t] + i), Wide(block.fade[t]), load(values + i));
      store(delta[t] + i, forgotten * block.beta[t]);
      store(o[t] + i, load(o[t] + i) * block.fade[t]);
    }
  }
  solve(delta, o, block);
  for (uint32_t t = 0; t < block.count; t++) {
    for (uint32_t i = 0; i < kColumns; i += kWide) {
      store(out + uint64_t{t} * out_stride + i, load(o[t] + i));
      store(delta[t] + i, load(delta[t] + i) * block.last[t]);
    }
  }
  multiply(state.columns[0], block.fade[block.used - 1], block.columns[0], kRows, delta[0], dim,
           block.count);
}

// All threadgroups of one head.
void run_head(const DeltaRule& rule, const QueryArgs& query, uint32_t v_head) {
  const GdnArgs& args = rule.args;
  const uint32_t dim = args.head_dim;
  const uint32_t groups = dim / kColumns;
  State states[kMaxGroups];
  for (uint32_t i = 0; i < groups; i++) {
    if (query.kv_valid == 0) {
      __builtin_memset(&states[i], 0, sizeof states[i]);
    } else {
      transpose_matrix(states[i].columns[0], kColumns, rule.old_state(query, v_head, i * kColumns),
                       dim, kColumns, dim);
    }
  }
  const uint32_t row_floats = channels_of(args);
  const uint32_t out_floats = args.n_v_heads * dim;
  Block block;
  const StateWriteArgs* write = rule.writes + query.first_write;
  for (uint32_t start = 0; start < query.count; start += block.count) {
    const uint32_t row = query.first_row + start;
    const uint32_t left = write->rows - start;
    load_rows(block, rule, row, left < kRows ? left : kRows, v_head);
    mix_rows(block, dim);
    for (uint32_t i = 0; i < groups; i++) {
      const uint32_t value = v_head * dim + i * kColumns;
      run_block(states[i], rule.out + uint64_t{row} * out_floats + value, out_floats,
                rule.act + uint64_t{row} * row_floats + 2 * args.n_k_heads * dim + value,
                row_floats, block, dim);
    }
    if (block.count == left) {
      for (uint32_t i = 0; i < groups; i++) {
        transpose_matrix(rule.new_state(*write, v_head, i * kColumns), dim, states[i].columns[0],
                         kColumns, dim, kColumns);
      }
      ++write;
    }
  }
}

}  // namespace
}  // namespace mtlqwen::twins

MTLQWEN_TWIN(gdn_chunk) {
  using namespace mtlqwen;
  using namespace mtlqwen::twins;
  const DeltaRule rule(dispatch, 2);
  const uint32_t head_groups = rule.args.head_dim / kColumns;
  return for_each_group(dispatch, first, count, [&](uint32_t x, uint32_t y) {
    const QueryArgs& query = rule.queries[y];
    if (x % head_groups == 0 && query.count >= rule.args.chunk_rows) {
      run_head(rule, query, x / head_groups);
    }
  });
}
