#include "model/control.hpp"

#include <algorithm>

#include "base/math.hpp"

namespace mtlqwen {

namespace {

// One definition for two runs: the first sums the sizes, the second hands out the parts.
template <class Take>
PassBuffers lay_out(const PassLimits& limits, uint8_t index, Take take) {
  return {.index = index,
          .pass = take(sizeof(Pass)),
          .logit_pass = take(sizeof(Pass)),
          .queries = take(limits.queries * sizeof(QueryArgs)),
          .writes = take(limits.rows * sizeof(StateWriteArgs)),
          .row_query = take(limits.rows * sizeof(uint32_t)),
          .input_ids = take(limits.rows * sizeof(int32_t)),
          .logit_rows = take(limits.sampled_rows * sizeof(uint32_t)),
          .samples = take(limits.sampled_rows * sizeof(SampleArgs)),
          .places = take(limits.sampled_rows * sizeof(uint32_t)),
          .sampled = take(limits.sampled_rows * sizeof(int32_t)),
          .verifies = take(limits.queries * sizeof(VerifyArgs)),
          .stops = take(limits.stops * sizeof(int32_t)),
          .accepted = take(limits.queries * sizeof(uint32_t))};
}

uint64_t arena_bytes(const PassLimits& limits) {
  uint64_t total = 0;
  lay_out(limits, 0, [&](uint64_t bytes) {
    total += Arena::padded(bytes);
    return Span{};
  });
  return total;
}

}  // namespace

uint32_t blocks_per_split(uint32_t rows, uint32_t longest, uint32_t least, uint32_t capacity) {
  const uint64_t n_blocks = ceil_div(longest, kSplitKeys);
  uint32_t blocks = least;
  while (rows * ceil_div(n_blocks, blocks) > capacity) blocks *= 2;
  return blocks;
}

Control::Control(Device& device, const PassLimits& limits, uint8_t pass_index)
    : arena_(device, arena_bytes(limits), Storage::kShared, "control arrays"),
      buffers_(lay_out(limits, pass_index, [&](uint64_t bytes) { return arena_.take(bytes); })) {}

void Control::pack_query(const PackedQuery& packed, uint32_t index) {
  const Query& query = packed.query;
  at<QueryArgs>(buffers_.queries)[index] = {
      .first_row = query.first_row,
      .count = query.count,
      .kv_valid = query.kv_valid,
      .slot = query.slot,
      .bank = query.bank,
      .first_write = n_writes_,
      .n_writes = query.taped ? 0 : static_cast<uint32_t>(query.writes.size()),
      .first_tape = n_tape_rows_};
  if (query.width > 0) pack_check(packed, index);
  if (query.taped) {
    n_tape_rows_ += query.count;
  } else {
    pack_writes(query, index);
  }
  std::fill_n(at<uint32_t>(buffers_.row_query) + query.first_row, query.count, index);
  int32_t* ids = at<int32_t>(buffers_.input_ids) + query.first_row;
  ids = std::ranges::copy(packed.tokens, ids).out;
  ids = std::ranges::copy(query.proposals, ids).out;
  if (query.asks_drafter()) std::fill_n(ids, query.width, 0);
  pack_samples(packed);
}

void Control::pack_samples(const PackedQuery& packed) {
  const Query& query = packed.query;
  for (uint32_t i = 0; i < packed.n_sampled(); ++i, ++n_logit_rows_) {
    const uint32_t row = query.count - packed.n_sampled() + i;
    at<uint32_t>(buffers_.logit_rows)[n_logit_rows_] = query.first_row + row;
    at<uint32_t>(buffers_.places)[n_logit_rows_] = packed.first_place + i;
    at<SampleArgs>(buffers_.samples)[n_logit_rows_] = {
        .temperature = packed.sampling.temperature,
        .seed_low = static_cast<uint32_t>(packed.sampling.seed),
        .seed_high = static_cast<uint32_t>(packed.sampling.seed >> 32),
        .position = query.kv_valid + row + packed.position_shift,
        .sample_index = 0,
        .edit = MTLQWEN_NO_INDEX,
        .filter = MTLQWEN_NO_INDEX,
        .mask = MTLQWEN_NO_INDEX};
  }
}

void Control::pack_check(const PackedQuery& packed, uint32_t index) {
  const std::span<const int32_t> stops = packed.stop_ids;
  const auto n_others = static_cast<uint32_t>(verifies_.size()) - n_taped_packed_;
  verifies_.push_back(packed.query.taped ? n_taped_packed_++ : n_taped_ + n_others);
  at<VerifyArgs>(buffers_.verifies)[verifies_.back()] = {.query = index,
                                                         .first_logit = n_logit_rows_,
                                                         .width = packed.query.width,
                                                         .bank = packed.query.writes.back().bank,
                                                         .first_stop = n_stops_,
                                                         .n_stops =
                                                             static_cast<uint32_t>(stops.size()),
                                                         .reserved = {}};
  std::ranges::copy(stops, at<int32_t>(buffers_.stops) + n_stops_);
  n_stops_ += static_cast<uint32_t>(stops.size());
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
  n_logit_rows_ = n_writes_ = n_stops_ = n_tape_rows_ = n_taped_packed_ = 0;
  n_taped_ = static_cast<uint32_t>(
      std::ranges::count_if(queries, [](const PackedQuery& packed) { return packed.query.taped; }));
  verifies_.clear();
  for (const PackedQuery& packed : queries) {
    pack_query(packed, pass.n_queries++);
    pass.rows += packed.query.count;
    shape.shortest = std::min(shape.shortest, packed.query.count);
    shape.longest = std::max(shape.longest, packed.query.count);
    const uint32_t keys = packed.query.kv_valid + packed.query.count;
    longest = std::max(longest, keys);
    shape.n_keys += keys;
  }
  n_rows_ = pass.rows;
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
  shape.n_verified = static_cast<uint32_t>(verifies_.size());
  shape.n_taped = n_taped_;
  shape.n_splits = pass.n_splits;
  return shape;
}

std::span<const int32_t> Control::sampled_ids() const {
  return {at<int32_t>(buffers_.sampled), n_logit_rows_};
}

std::span<const uint32_t> Control::accepted() {
  accepted_.clear();
  for (const uint32_t place : verifies_) {
    accepted_.push_back(at<uint32_t>(buffers_.accepted)[place]);
  }
  return accepted_;
}

std::span<const int32_t> Control::input_ids() const {
  return {at<int32_t>(buffers_.input_ids), n_rows_};
}

}  // namespace mtlqwen
