// attention_split: metal/attention_split.metal says what it computes, and what a tile and an entry
// are.
//
// An entry's bits do not depend on the others here either. A dot product has a running sum for each
// lane, folded in halves; a value sum takes its keys in order; all of them by explicit fma. How many
// keys and entries are multiplied at once changes none of that.
#include "attention.h"
#include "attention_tile.h"
#include "math.h"

namespace mtlqwen::twins {
namespace {

constexpr uint32_t kMaxEntries = 16;
// A query of as few rows, one that decodes or a draft, waits for memory: keys and values are fetched
// ahead. Those of more find them in a cache from the second tile on, and asking costs a twentieth.
constexpr uint32_t kFewRows = 16;
// Finite, and exp(kMasked - kLowest) is 0: a masked key has no weight even before the first seen one.
constexpr float kMasked = -1e30F;
constexpr float kLowest = -1e29F;  // below any score

// The entries of one or more K/V heads, row by row in each. Pointers stand at the first.
//
// A threadgroup has one K/V head. Those of neighbouring threadgroups are joined where a tile is one
// row, which waits for memory: the heads of a key lie side by side there.
struct Tile {
  float* partial;
  float* stats;
  const float* q;
  uint32_t n_kv_heads;
  uint32_t n_heads;    // entries of a row, in one K/V head
  uint32_t n_entries;  // of one K/V head
  uint32_t row_heads;  // heads of a row in memory
  uint32_t n_splits;
  uint32_t dim;
  uint32_t first_position;  // of the first row
  Sight sight;

  [[nodiscard]] uint32_t n_all() const { return n_kv_heads * n_entries; }
  [[nodiscard]] uint32_t position(uint32_t entry) const {
    return first_position + entry % n_entries / n_heads;
  }
  // Head of an entry, counted in memory from that of the first.
  [[nodiscard]] uint32_t head(uint32_t entry) const {
    const uint32_t mine = entry % n_entries;
    return entry / n_entries * n_heads + mine / n_heads * row_heads + mine % n_heads;
  }
};

// What an entry carries from block to block, and the numbers of the block at hand.
struct State {
  float sums[kMaxEntries][kMaxDim];    // weighted sums of the values
  float weights[kMaxEntries][kBlock];  // first the scores
  Wide total[kMaxEntries];             // sums of weights
  float top[kMaxEntries];              // highest score so far
  float fade[kMaxEntries];             // of the earlier sums, for a new top
  const float* queries[kMaxEntries];
};

void start(State& state, const Tile& tile) {
  for (uint32_t e = 0; e < tile.n_all(); e++) {
    for (uint32_t d = 0; d < tile.dim; d += kWide) store(state.sums[e] + d, Wide(0.0F));
    state.total[e] = 0.0F;
    state.top[e] = kLowest;
    state.queries[e] = tile.q + uint64_t{tile.head(e)} * tile.dim;
  }
}

// Scores of a block become weights. `known`: those that were computed.
MTLQWEN_INLINE void weigh(State& state, const Tile& tile, uint32_t e, uint32_t block, Keys known) {
  float* scores = state.weights[e];
  const uint32_t position = tile.position(e);
  const uint32_t begin = larger(tile.sight.begin(position), block + known.begin) - block;
  const uint32_t end = smaller(tile.sight.end(position), block + known.end);
  for (uint32_t j = 0; j < smaller(begin, kBlock); j++) scores[j] = kMasked;
  for (uint32_t j = end > block ? end - block : 0; j < kBlock; j++) scores[j] = kMasked;
  Wide top = state.top[e];
  for (uint32_t j = 0; j < kBlock; j += kWide) {
    top = larger(top, load(scores + j));
  }
  const float new_top = largest(top);
  const Wide fade = exp(Wide(state.top[e]) - new_top);
  state.top[e] = new_top;
  state.fade[e] = fade[0];
  Wide total = state.total[e];
  for (uint32_t j = 0; j < kBlock; j += kWide) {
    const Wide weight = exp(load(scores + j) - new_top);
    store(scores + j, weight);
    total = j == 0 ? multiply_add(total, fade, weight) : total + weight;
  }
  state.total[e] = total;
}

MTLQWEN_INLINE void finish(const State& state, const Tile& tile, uint32_t first_key,
                           uint32_t end_key) {
  for (uint32_t e = 0; e < tile.n_all(); e++) {
    // A row that sees no key of the split has no result of it.
    const uint32_t begin = larger(first_key, tile.sight.begin(tile.position(e)));
    if (begin >= smaller(end_key, tile.sight.end(tile.position(e)))) continue;
    const uint64_t place = uint64_t{tile.head(e)} * tile.n_splits;
    tile.stats[2 * place] = state.top[e];
    tile.stats[2 * place + 1] = fold(state.total[e]);
    float* to = tile.partial + place * tile.dim;
    for (uint32_t d = 0; d < tile.dim; d += kWide) store(to + d, load(state.sums[e] + d));
  }
}

// Keys first_key .. end_key - 1 of one split, whose rows are `stride` halves apart. fetches: each
// product asks for what the next one reads.
MTLQWEN_INLINE void attend(const Tile& tile, const _Float16* keys, const _Float16* values,
                           uint32_t stride, uint32_t first_key, uint32_t end_key, bool fetches) {
  State state;
  start(state, tile);
  const uint32_t n = tile.n_entries;
  for (uint32_t block = first_key / kBlock * kBlock; block < end_key; block += kBlock) {
    const Keys known = {larger(first_key, block) - block, smaller(end_key - block, kBlock)};
    const bool is_last = end_key - block <= kBlock;
    for (uint32_t first = 0; first < tile.n_all(); first += n) {
      const uint64_t place = uint64_t{block} * stride + first / n * tile.dim;
      const bool ends_block = first + n == tile.n_all();
      const _Float16* next =
          ends_block ? keys + (uint64_t{block} + kBlock) * stride : keys + place + tile.dim;
      score_keys(state.weights + first, state.queries + first, n, keys + place, stride, known,
                 tile.dim, fetches ? values + place : nullptr);
      for (uint32_t e = first; e < first + n; e++) weigh(state, tile, e, block, known);
      add_values(state.sums + first, state.fade + first, state.weights + first, n, values + place,
                 stride, known, tile.dim, fetches && !(is_last && ends_block) ? next : nullptr);
    }
  }
  finish(state, tile, first_key, end_key);
}

// Threadgroups x .. x + n_joined - 1 of one split. tile_rows: rows of a tile; where it spans
// queries, they are served one after the other.
__attribute__((min_vector_width(512))) void split_groups(const Dispatch& dispatch, uint32_t x,
                                                         uint32_t y, uint32_t n_joined,
                                                         uint32_t tile_rows) {
  const auto* queries = dispatch.buffer<const QueryArgs>(5);
  const auto* row_query = dispatch.buffer<const uint32_t>(6);
  const auto& args = dispatch.args<AttentionArgs>(7);
  const auto& pass = dispatch.args<Pass>(8);
  const uint32_t kv_head = x % args.n_kv_heads;
  const uint32_t split = x / args.n_kv_heads;
  const uint32_t n_heads = args.n_heads / args.n_kv_heads;
  const uint32_t split_begin = split * pass.blocks_per_split * kBlock;
  const uint32_t split_end = split_begin + pass.blocks_per_split * kBlock;
  const uint32_t end_row = pass.rows < (y + 1) * tile_rows ? pass.rows : (y + 1) * tile_rows;

  uint32_t n_rows = 0;
  for (uint32_t row = y * tile_rows; row < end_row; row += n_rows) {
    const QueryArgs& query = queries[row_query[row]];
    const uint32_t query_end = query.first_row + query.count;
    n_rows = (end_row < query_end ? end_row : query_end) - row;
    const Sight seen = sight(query, args);
    const uint32_t position = row_position(row, query);
    const uint32_t first_key = larger(seen.begin(position), split_begin);
    const uint32_t end_key = smaller(seen.end(position + n_rows - 1), split_end);
    if (first_key >= end_key) continue;

    const uint32_t head = row * args.n_heads + kv_head * n_heads;
    const uint64_t place = uint64_t{head} * pass.n_splits + split;
    const uint64_t plane = plane_offset(0, kv_head, query, args);
    const Tile tile = {dispatch.buffer<float>(0) + place * args.head_dim,
                       dispatch.buffer<float>(1) + 2 * place,
                       dispatch.buffer<const float>(2) + uint64_t{head} * args.head_dim,
                       n_joined,
                       n_heads,
                       n_rows * n_heads,
                       args.n_heads,
                       pass.n_splits,
                       args.head_dim,
                       position,
                       seen};
    attend(tile, dispatch.buffer<const _Float16>(3) + plane,
           dispatch.buffer<const _Float16>(4) + plane, args.token_halves, first_key, end_key,
           query.count <= kFewRows);
  }
}

// Tiles that share keys and values follow each other, so that the second finds them in the nearest
// caches: `first` and `count` count down the columns of the grid.
int run_tiles(const Dispatch& dispatch, uint64_t first, uint64_t count, uint32_t tile_rows) {
  const uint32_t n_tiles = dispatch.groups_y();
  for (uint64_t end = first + count; first < end; first++) {
    if (dispatch.is_aborted()) return MSL_ABORTED;
    split_groups(dispatch, static_cast<uint32_t>(first / n_tiles),
                 static_cast<uint32_t>(first % n_tiles), 1, tile_rows);
  }
  return MSL_OK;
}

// max_entries: as many rows as it holds make a tile; 0: one row.
int run_split(const Dispatch& dispatch, uint64_t first, uint64_t count, uint32_t max_entries) {
  const auto& args = dispatch.args<AttentionArgs>(7);
  const uint32_t n_heads = args.n_heads / args.n_kv_heads;
  const uint32_t tile_rows = larger(max_entries / n_heads, 1);
  if (tile_rows > 1) return run_tiles(dispatch, first, count, tile_rows);
  const uint32_t most_joined = kMaxEntries / n_heads;
  const uint32_t width = dispatch.groups_x();
  for (uint64_t end = first + count; first < end;) {
    if (dispatch.is_aborted()) return MSL_ABORTED;
    const auto x = static_cast<uint32_t>(first % width);
    uint64_t n_joined = args.n_kv_heads - x % args.n_kv_heads;
    if (n_joined > most_joined) n_joined = most_joined;
    if (n_joined > end - first) n_joined = end - first;
    split_groups(dispatch, x, static_cast<uint32_t>(first / width), static_cast<uint32_t>(n_joined),
                 1);
    first += n_joined;
  }
  return MSL_OK;
}

}  // namespace
}  // namespace mtlqwen::twins

MTLQWEN_TWIN(attention_split) { return mtlqwen::twins::run_split(dispatch, first, count, 0); }

MTLQWEN_TWIN(attention_split_tile_8) {
  return mtlqwen::twins::run_split(dispatch, first, count, 8);
}

MTLQWEN_TWIN(attention_split_tile_16) {
  return mtlqwen::twins::run_split(dispatch, first, count, 16);
}
