#include "model/control.hpp"

#include <algorithm>

#include "base/math.hpp"

namespace mtlqwen {

namespace {

uint64_t arena_bytes(uint32_t slots) {
  return 2 * Arena::padded(sizeof(Pass)) + Arena::padded(slots * sizeof(QueryArgs)) +
         Arena::padded(kPassRows * sizeof(StateWriteArgs)) +
         3 * Arena::padded(kPassRows * sizeof(uint32_t)) +
         3 * Arena::padded(slots * sizeof(uint32_t)) + Arena::padded(slots * sizeof(SampleArgs)) +
         Arena::padded(slots * sizeof(VerifyArgs)) +
         Arena::padded(slots * kStopsOfQuery * sizeof(int32_t));
}

}  // namespace

uint32_t blocks_per_split(uint32_t rows, uint32_t longest, uint32_t least, uint32_t capacity) {
  const uint64_t n_blocks = ceil_div(longest, kSplitKeys);
  uint32_t blocks = least;
  while (rows * ceil_div(n_blocks, blocks) > capacity) blocks *= 2;
  return blocks;
}

Control::Control(Device& device, uint32_t slots)
    : arena_(device, arena_bytes(slots), Storage::kShared, "control arrays"),
      buffers_{.index = 0,
               .pass = arena_.take(sizeof(Pass)),
               .logit_pass = arena_.take(sizeof(Pass)),
               .queries = arena_.take(slots * sizeof(QueryArgs)),
               .writes = arena_.take(kPassRows * sizeof(StateWriteArgs)),
               .row_query = arena_.take(kPassRows * sizeof(uint32_t)),
               .input_ids = arena_.take(kPassRows * sizeof(int32_t)),
               .logit_rows = arena_.take(slots * sizeof(uint32_t)),
               .samples = arena_.take(slots * sizeof(SampleArgs)),
               .sampled = arena_.take(slots * sizeof(int32_t)),
               .verifies = arena_.take(slots * sizeof(VerifyArgs)),
               .accepted = arena_.take(slots * sizeof(uint32_t)),
               .stops = arena_.take(slots * kStopsOfQuery * sizeof(int32_t)),
               .places = arena_.take(kPassRows * sizeof(uint32_t))} {}

void Control::pack_query(const PackedQuery& packed, uint32_t index) {
  const Query& query = packed.query;
  at<QueryArgs>(buffers_.queries)[index] = {.first_row = query.first_row,
                                            .count = query.count,
                                            .kv_valid = query.kv_valid,
                                            .slot = query.slot,
                                            .bank = query.bank,
                                            .first_write = n_writes_,
                                            .n_writes = static_cast<uint32_t>(query.writes.size()),
                                            .first_tape = 0};
  pack_writes(query, index);
  std::fill_n(at<uint32_t>(buffers_.row_query) + query.first_row, query.count, index);
  std::copy(packed.tokens.begin(), packed.tokens.end(),
            at<int32_t>(buffers_.input_ids) + query.first_row);
  if (!query.emits) return;
  at<uint32_t>(buffers_.logit_rows)[n_logit_rows_] = query.first_row + query.count - 1;
  at<SampleArgs>(buffers_.samples)[n_logit_rows_] = {
      .temperature = packed.sampling.temperature,
      .seed_low = static_cast<uint32_t>(packed.sampling.seed),
      .seed_high = static_cast<uint32_t>(packed.sampling.seed >> 32),
      .position = query.kv_valid + query.count,
      .sample_index = 0,
      .reserved = {}};
  ++n_logit_rows_;
}

void Control::pack_writes(const Query& query, uint32_t index) {
  for (const StateWrite& write : query.writes) {
    at<StateWriteArgs>(buffers_.writes)[n_writes_++] = {
        .query = index, .rows = write.rows, .bank = write.bank, .reserved = 0};
  }
}

PassShape Control::pack(std::span<const PackedQuery> queries, uint32_t min_blocks_per_split,
                        uint32_t partial_capacity) {
  Pass pass{};
  uint32_t longest = 0;
  PassShape shape{.shortest = kPassRows};
  n_logit_rows_ = 0;
  n_writes_ = 0;
  for (const PackedQuery& packed : queries) {
    pack_query(packed, pass.n_queries++);
    pass.rows += packed.query.count;
    shape.shortest = std::min(shape.shortest, packed.query.count);
    shape.longest = std::max(shape.longest, packed.query.count);
    const uint32_t keys = packed.query.kv_valid + packed.query.count;
    longest = std::max(longest, keys);
    shape.n_keys += keys;
  }
  pass.n_logit_rows = n_logit_rows_;
  pass.n_writes = n_writes_;
  pass.blocks_per_split =
      blocks_per_split(pass.rows, longest, min_blocks_per_split, partial_capacity);
  pass.n_splits = static_cast<uint32_t>(ceil_div(longest, pass.blocks_per_split * kSplitKeys));
  *at<Pass>(buffers_.pass) = pass;
  Pass logit_pass = pass;
  logit_pass.rows = pass.n_logit_rows;
  *at<Pass>(buffers_.logit_pass) = logit_pass;
  shape.rows = pass.rows;
  shape.n_queries = pass.n_queries;
  shape.n_logit_rows = pass.n_logit_rows;
  shape.n_writes = pass.n_writes;
  shape.n_splits = pass.n_splits;
  return shape;
}

std::span<const int32_t> Control::sampled_ids() const {
  return {at<int32_t>(buffers_.sampled), n_logit_rows_};
}

}  // namespace mtlqwen
