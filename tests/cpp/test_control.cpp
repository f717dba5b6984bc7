// model/control: what a pass is told of its queries, as kernels read it.
#include <algorithm>
#include <bit>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "check.hpp"
#include "gpu/commands.hpp"
#include "model/control.hpp"
#include "model/logit_edits.hpp"
#include "row_copier.hpp"

namespace mtlqwen::testing {
namespace {

constexpr PassLimits kLimits{.queries = 4, .sampled_rows = 16, .stops = 8};

std::string library_path;  // the program's first argument

std::vector<uint32_t> words(Device& device, const Span& span, size_t n) {
  RowCopier copier(device);
  Commands commands(device);
  std::vector<uint32_t> values;
  for (const float value : copier.load(commands, span.address, n)) {
    values.push_back(std::bit_cast<uint32_t>(value));
  }
  return values;
}

PackedQuery packed(const Query& query, const std::vector<int32_t>& tokens) {
  return {.query = query,
          .tokens = std::span(tokens).first(std::min<size_t>(query.count, tokens.size())),
          .sampling = {}};
}

// Writes of all queries stand in one array, each with its query's index; a query without one takes
// no place in it.
void test_state_writes() {
  Device device(library_path);
  Control control(device, kLimits);
  const std::vector<int32_t> tokens(8, 7);
  const std::vector<PackedQuery> queries = {
      packed({.slot = 2, .count = 5, .kv_valid = 9, .bank = 3, .writes = {{1, 8}, {5, 6}}}, tokens),
      packed({.slot = 1, .first_row = 5, .count = 1, .bank = 4}, tokens),
      packed({.slot = 3, .first_row = 6, .count = 2, .bank = 3, .writes = {{2, 7}}, .emits = true},
             tokens)};
  const PassShape shape = control.pack(queries, 1, kPassRows);
  check_equal(shape.n_writes, 3U);
  check(words(device, control.buffers().writes, 12) ==
        std::vector<uint32_t>{0, 1, 8, 0, 0, 5, 6, 0, 2, 2, 7, 0});
  check(words(device, control.buffers().queries, 24) ==
        std::vector<uint32_t>{0, 5, 9, 2, 3, 0, 2, 0, 5, 1, 0, 1,
                              4, 2, 0, 0, 6, 2, 0, 3, 3, 2, 1, 0});
  check(words(device, control.buffers().pass, 6) == std::vector<uint32_t>{8, 3, 1, 1, 1, 3});
  // Nothing of a pass is left in the next.
  check_equal(control.pack({&queries[2], 1}, 1, kPassRows).n_writes, 1U);
  check(words(device, control.buffers().writes, 4) == std::vector<uint32_t>{0, 2, 7, 0});
}

// As many as a pass has rows.
void test_a_state_of_every_row() {
  Device device(library_path);
  Control control(device, kLimits);
  const std::vector<int32_t> tokens(kPassRows, 7);
  Query query{.count = kPassRows};
  for (uint32_t rows = 1; rows <= kPassRows; ++rows) {
    query.writes.push_back({.rows = rows, .bank = 1000 - rows});
  }
  check_equal(control.pack(std::vector{packed(query, tokens)}, 1, kPassRows).n_writes, kPassRows);
  const std::vector<uint32_t> writes = words(device, control.buffers().writes, 4 * kPassRows);
  for (uint32_t i = 0; i < kPassRows; ++i) {
    check_equal(writes[4 * i + 1], i + 1);
    check_equal(writes[4 * i + 2], 999 - i);
  }
  check(words(device, control.buffers().row_query, kPassRows) ==
        std::vector<uint32_t>(kPassRows, 0));
}

// A draft of known proposals by the tape, one that a drafter makes into candidate states, and the end of a prompt.
void test_drafts() {
  Device device(library_path);
  Control control(device, kLimits);
  const std::vector<int32_t> tokens = {7, 8, 9};
  const std::vector<int32_t> stops = {31, 32};
  std::vector<PackedQuery> queries = {
      packed({.count = 3,
              .kv_valid = 9,
              .bank = 3,
              .writes = {{3, 6}},
              .emits = true,
              .width = 2,
              .proposals = {21, 22},
              .taped = true},
             tokens),
      packed({.slot = 1,
              .first_row = 3,
              .count = 2,
              .kv_valid = 20,
              .writes = {{1, 8}, {2, 9}},
              .emits = true,
              .width = 1},
             tokens),
      packed({.slot = 2, .first_row = 5, .count = 3, .writes = {{3, 7}}, .emits = true}, tokens)};
  queries[0].tokens = std::span(tokens).first(1);
  queries[0].stop_ids = stops;
  queries[1].tokens = std::span(tokens).subspan(1, 1);
  const PassShape shape = control.pack(queries, 1, kPassRows);
  check_equal(shape.n_logit_rows, 6U);
  check_equal(shape.n_writes, 3U);
  check_equal(shape.n_verified, 2U);
  check_equal(shape.n_taped, 1U);
  const PassBuffers& buffers = control.buffers();
  check(words(device, buffers.input_ids, 8) == std::vector<uint32_t>{7, 21, 22, 8, 0, 7, 8, 9});
  check(words(device, buffers.logit_rows, 6) == std::vector<uint32_t>{0, 1, 2, 3, 4, 7});
  // Of each SampleArgs, the position of the token to be chosen.
  const std::vector<uint32_t> samples = words(device, buffers.samples, 6 * 8);
  const std::vector<uint32_t> positions = {10, 11, 12, 21, 22, 3};
  for (size_t i = 0; i < positions.size(); ++i) check_equal(samples[8 * i + 3], positions[i]);
  check(words(device, buffers.verifies, 14) ==
        std::vector<uint32_t>{0, 0, 2, 6, 0, 2, 0, 0, 1, 3, 1, 9, 2, 0});
  check(words(device, buffers.stops, 2) == std::vector<uint32_t>{31, 32});
  // (first_write, n_writes, first_tape) of each query.
  const std::vector<uint32_t> packed_queries = words(device, buffers.queries, 3 * 8);
  check_equal(packed_queries[6], 0U);
  check_equal(packed_queries[7], 0U);
  check_equal(packed_queries[8 + 6], 2U);
  check_equal(packed_queries[16 + 5], 2U);
}

// Each row of a held text has a mask, that of an allowed text is one; no draft goes beyond an opening.
void test_held_texts() {
  Device device(library_path);
  Control control(device, {.queries = 4, .sampled_rows = 16, .stops = 8, .mask_words = 4});
  const LogitEdits edits({.allowed = {3, 40}}, {}, 100);
  const std::vector<int32_t> tokens = {7, 8};
  const std::vector<int32_t> stops = {31};
  std::vector<PackedQuery> queries = {
      packed({.count = 2, .writes = {{2, 1}}}, tokens),  // part of a prompt: nothing is sampled
      packed({.first_row = 2, .count = 1, .writes = {{1, 2}}, .emits = true}, tokens),
      packed({.first_row = 3,
              .count = 3,
              .writes = {{3, 3}},
              .emits = true,
              .width = 2,
              .proposals = {21, 22},
              .taped = true},
             tokens)};
  queries[0].held = HeldText{.key = 5};
  queries[1].edits = &edits;
  queries[1].stop_ids = stops;
  queries[2].tokens = std::span(tokens).first(1);
  queries[2].held = HeldText{.key = 9, .n_heard = 2, .fresh = tokens};
  queries[2].stop_ids = stops;
  queries[2].opening = 77;
  check_equal(control.pack(queries, 1, kPassRows).n_logit_rows, 4U);
  check(control.masks_held());
  const std::span<const MaskItem> items = control.mask_items();
  check_equal(items.size(), size_t{1});
  check_equal(items[0].text.key, uint64_t{9});
  check_equal(items[0].text.n_heard, 2U);
  check(items[0].text.fresh.data() == tokens.data());
  check_equal(items[0].first_row, 1U);
  check(std::ranges::equal(items[0].drafted, std::vector<int32_t>{21, 22}));
  check_equal(control.masks().rows, 4U);
  check(std::ranges::equal(control.masks().row(0), std::vector<uint32_t>{8, 256, 0, 0}));
  const std::vector<uint32_t> samples = words(device, control.buffers().samples, 4 * 8);
  for (uint32_t i = 0; i < 4; ++i) check_equal(samples[8 * i + 6], i);
  check(words(device, control.buffers().stops, 2) == std::vector<uint32_t>{31, 77});
  check_equal(control.pack(std::span(queries).first(1), 1, kPassRows).n_logit_rows, 0U);
  check(!control.masks_held());
}

// Taped drafts stand before the others, whatever their order in the pass.
void test_taped_drafts_come_first() {
  Device device(library_path);
  Control control(device, kLimits);
  const std::vector<int32_t> tokens = {7};
  const std::vector<PackedQuery> queries = {
      packed({.count = 2, .writes = {{1, 8}, {2, 9}}, .emits = true, .width = 1}, tokens),
      packed({.first_row = 2,
              .count = 3,
              .writes = {{3, 6}},
              .emits = true,
              .width = 2,
              .taped = true},
             tokens)};
  check_equal(control.pack(queries, 1, kPassRows).n_taped, 1U);
  const std::vector<uint32_t> verifies = words(device, control.buffers().verifies, 16);
  check(verifies[0] == 1 && verifies[1] == 2 && verifies[3] == 6);
  check(verifies[8] == 0 && verifies[9] == 0 && verifies[11] == 9);
}

// A block of a drafter: its first row is not sampled, its ids go elsewhere.
void test_a_drafters_pass() {
  Device device(library_path);
  Control control(device, kLimits, 1);
  const std::vector<int32_t> tokens = {5, 90, 90};
  const PackedQuery block{.query = {.slot = 2, .count = 3, .kv_valid = 40},
                          .tokens = tokens,
                          .sampling = {},
                          .n_proposed = 2,
                          .position_shift = 0,
                          .first_place = 11};
  check_equal(control.pack({&block, 1}, 1, kPassRows).n_logit_rows, 2U);
  check_equal(uint32_t{control.buffers().index}, 1U);
  check(words(device, control.buffers().input_ids, 3) == std::vector<uint32_t>{5, 90, 90});
  check(words(device, control.buffers().logit_rows, 2) == std::vector<uint32_t>{1, 2});
  check(words(device, control.buffers().places, 2) == std::vector<uint32_t>{11, 12});
  check_equal(words(device, control.buffers().samples, 4)[3], 41U);
}

}  // namespace
}  // namespace mtlqwen::testing

int main(int n_arguments, char** arguments) {
  using namespace mtlqwen::testing;
  if (n_arguments < 2) return 2;
  library_path = arguments[1];
  return run({{"state writes", test_state_writes},
              {"a state of every row", test_a_state_of_every_row},
              {"drafts", test_drafts},
              {"held texts", test_held_texts},
              {"taped drafts come first", test_taped_drafts_come_first},
              {"a drafter's pass", test_a_drafters_pass}},
             n_arguments > 2 ? arguments[2] : "");
}
