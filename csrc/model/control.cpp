#include "model/control.hpp"

#include <algorithm>

#include "base/math.hpp"
#include "model/logit_edits.hpp"

namespace mtlqwen {

namespace {

// One definition for two runs: the first sums the sizes, the second hands out the parts.
template <class Take>
PassBuffers lay_out(const PassLimits& limits, uint8_t index, Take take) {
  const uint64_t n_chosen = limits.mask_words > 0 ? limits.sampled_rows : 0;
  return {.index = index,
          .pass = take(sizeof(Pass)),
          .logit_pass = take(sizeof(Pass)),
          .queries = take(limits.queries * sizeof(QueryArgs)),
          .writes = take(limits.rows * sizeof(StateWriteArgs)),
          .row_query = take(limits.rows * sizeof(uint32_t)),
          .input_ids = take(limits.rows * sizeof(int32_t)),
          .spoilt = take(limits.rows * sizeof(uint32_t)),
          .spoilt_logits = take(limits.sampled_rows * sizeof(uint32_t)),
          .logit_rows = take(limits.sampled_rows * sizeof(uint32_t)),
          .samples = take(limits.sampled_rows * sizeof(SampleArgs)),
          .places = take(limits.sampled_rows * sizeof(uint32_t)),
          .sampled = take(limits.sampled_rows * sizeof(int32_t)),
          .filters = take(n_chosen * sizeof(FilterArgs)),
          .kept = take(limits.sampled_rows * sizeof(Kept)),
          .masks = {},  // not of the arena
          .verifies = take(limits.queries * sizeof(VerifyArgs)),
          .stops = take(limits.stops * sizeof(int32_t)),
          .accepted = take(limits.queries * sizeof(uint32_t)),
          .logprobs = take(n_chosen * sizeof(LogprobArgs)),
          .chosen = take(n_chosen * sizeof(TokenLogprob)),
          .likeliest = take(n_chosen * kMostLogprobs * sizeof(TokenLogprob))};
}

uint64_t arena_bytes(const PassLimits& limits) {
  uint64_t total = 0;
  lay_out(limits, 0, [&](uint64_t bytes) {
    total += Arena::padded(bytes);
    return Span{};
  });
  return total;
}

uint64_t mask_bytes(const PassLimits& limits) {
  return uint64_t{limits.sampled_rows} * limits.mask_words * sizeof(uint32_t);
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
      masks_(device, std::max<uint64_t>(mask_bytes(limits), 1), Storage::kShared, "masks"),
      buffers_(lay_out(limits, pass_index, [&](uint64_t bytes) { return arena_.take(bytes); })),
      mask_words_(limits.mask_words) {
  buffers_.masks = masks_.take(mask_bytes(limits));
}

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
  pack_told(packed);
  pack_samples(packed);
}

// What is sampled there is the greedy choice, which nobody reads.
void Control::pack_told(const PackedQuery& packed) {
  const Query& query = packed.query;
  for (uint32_t i = 0; i < query.n_told; ++i, ++n_logit_rows_) {
    at<uint32_t>(buffers_.logit_rows)[n_logit_rows_] = query.first_row + query.first_told + i;
    pack_logprobs(*packed.prompt_logprobs, packed.told[i]);
    at<SampleArgs>(buffers_.samples)[n_logit_rows_] = {.temperature = 0.0F,
                                                       .seed_low = 0,
                                                       .seed_high = 0,
                                                       .position = 0,
                                                       .sample_index = 0,
                                                       .filter = MTLQWEN_NO_INDEX,
                                                       .mask = MTLQWEN_NO_INDEX,
                                                       .reserved = 0};
  }
}

void Control::pack_samples(const PackedQuery& packed) {
  const Query& query = packed.query;
  const bool is_held = packed.held && packed.n_sampled() > 0;
  const bool has_mask = packed.edits != nullptr && packed.n_sampled() > 0;
  const uint32_t mask = is_held    ? reserve_masks(packed)
                        : has_mask ? pack_mask(packed.edits->mask())
                                   : MTLQWEN_NO_INDEX;
  for (uint32_t i = 0; i < packed.n_sampled(); ++i, ++n_logit_rows_) {
    const uint32_t row = query.count - packed.n_sampled() + i;
    at<uint32_t>(buffers_.logit_rows)[n_logit_rows_] = query.first_row + row;
    at<uint32_t>(buffers_.places)[n_logit_rows_] = packed.first_place + i;
    if (packed.logprobs) pack_logprobs(*packed.logprobs, MTLQWEN_NO_CHOICE);
    at<SampleArgs>(buffers_.samples)[n_logit_rows_] = {
        .temperature = packed.sampling.temperature,
        .seed_low = static_cast<uint32_t>(packed.sampling.seed),
        .seed_high = static_cast<uint32_t>(packed.sampling.seed >> 32),
        .position = query.kv_valid + row + packed.position_shift,
        .sample_index = packed.sampling.sample_index,
        .filter = pack_filter(packed.sampling),
        .mask = is_held ? mask + i : mask,
        .reserved = 0};
  }
}

uint32_t Control::pack_filter(const Sampling& sampling) {
  if (!sampling.filters() || mask_words_ == 0) return MTLQWEN_NO_INDEX;
  at<FilterArgs>(buffers_.filters)[n_filters_] = {.row = n_logit_rows_,
                                                  .top_k = sampling.top_k,
                                                  .top_p = sampling.top_p,
                                                  .min_p = sampling.min_p};
  return n_filters_++;
}

// One for each row, to be filled before any is chosen from.
uint32_t Control::reserve_masks(const PackedQuery& packed) {
  const Query& query = packed.query;
  const uint32_t first = n_masks_;
  const int32_t* ids = at<int32_t>(buffers_.input_ids);
  held_.push_back({.text = *packed.held,
                   .drafted = {ids + query.first_row + query.count - query.width, query.width},
                   .first_row = first});
  n_masks_ += packed.n_sampled();
  return first;
}

MaskTable Control::masks() const {
  return {.words = mask_row(0), .rows = n_masks_, .row_words = mask_words_};
}

// All rows of a query have one.
uint32_t Control::pack_mask(std::span<const uint32_t> mask) {
  if (mask.empty()) return MTLQWEN_NO_INDEX;
  std::ranges::copy(mask, mask_row(n_masks_));
  return n_masks_++;
}

void Control::pack_logprobs(uint32_t n_likeliest, int32_t told) {
  at<LogprobArgs>(buffers_.logprobs)[n_logprobs_++] = {
      .row = n_logit_rows_, .n_top = n_likeliest, .first_top = n_likeliest_, .told = told};
  n_likeliest_ += n_likeliest;
}

void Control::pack_check(const PackedQuery& packed, uint32_t index) {
  const uint32_t n_stops = static_cast<uint32_t>(packed.stop_ids.size()) + (packed.opening ? 1 : 0);
  const auto n_others = static_cast<uint32_t>(verifies_.size()) - n_taped_packed_;
  verifies_.push_back(packed.query.taped ? n_taped_packed_++ : n_taped_ + n_others);
  at<VerifyArgs>(buffers_.verifies)[verifies_.back()] = {.query = index,
                                                         .first_logit =
                                                             n_logit_rows_ + packed.query.n_told,
                                                         .width = packed.query.width,
                                                         .bank = packed.query.writes.back().bank,
                                                         .first_stop = n_stops_,
                                                         .n_stops = n_stops,
                                                         .reserved = {}};
  int32_t* stops = at<int32_t>(buffers_.stops) + n_stops_;
  stops = std::ranges::copy(packed.stop_ids, stops).out;
  if (packed.opening) *stops = *packed.opening;
  n_stops_ += n_stops;
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
  n_filters_ = n_masks_ = n_logprobs_ = n_likeliest_ = 0;
  n_taped_ = static_cast<uint32_t>(
      std::ranges::count_if(queries, [](const PackedQuery& packed) { return packed.query.taped; }));
  verifies_.clear();
  held_.clear();
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
  std::fill_n(at<uint32_t>(buffers_.spoilt), n_rows_, MTLQWEN_NO_INDEX);
  std::fill_n(at<uint32_t>(buffers_.spoilt_logits), n_logit_rows_, MTLQWEN_NO_INDEX);
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
  shape.n_filters = n_filters_;
  shape.n_logprobs = n_logprobs_;
  shape.n_splits = pass.n_splits;
  return shape;
}

std::span<const int32_t> Control::sampled_ids() const {
  return {at<int32_t>(buffers_.sampled), n_logit_rows_};
}

Logprobs Control::logprobs() const {
  if (n_logprobs_ == 0) return {};
  return {.chosen = {at<TokenLogprob>(buffers_.chosen), n_logprobs_},
          .likeliest = {at<TokenLogprob>(buffers_.likeliest), n_likeliest_}};
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
