// model/control: what a pass is told of its queries, as kernels read it.
#include <bit>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "check.hpp"
#include "gpu/commands.hpp"
#include "model/control.hpp"
#include "row_copier.hpp"

namespace mtlqwen::testing {
namespace {

constexpr uint32_t kSlots = 4;

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
  return {.query = query, .tokens = std::span(tokens).first(query.count), .sampling = {}};
}

// Writes of all queries stand in one array, each with its query's index; a query without one takes
// no place in it.
void test_state_writes() {
  Device device(library_path);
  Control control(device, kSlots);
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
  Control control(device, kSlots);
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

}  // namespace
}  // namespace mtlqwen::testing

int main(int n_arguments, char** arguments) {
  using namespace mtlqwen::testing;
  if (n_arguments < 2) return 2;
  library_path = arguments[1];
  return run(
      {{"state writes", test_state_writes}, {"a state of every row", test_a_state_of_every_row}},
      n_arguments > 2 ? arguments[2] : "");
}
