#include "model/lazy_context.hpp"

#include <algorithm>
#include <functional>
#include <numeric>

namespace mtlqwen {

namespace {

// How many numbers from the first on follow one another.
uint32_t run_length(std::span<const uint32_t> rows) {
  uint32_t n = 1;
  while (n < rows.size() && rows[n] == rows[0] + n) ++n;
  return n;
}

}  // namespace

LazyContext::LazyContext(Device& device, uint32_t slots, uint8_t pass_index, const Rows& rows)
    : rows_(rows), pass_index_(pass_index), control_(device, {.queries = slots}, pass_index),
      store_rows_(
          device.new_buffer(kStoredTaps * rows.row_bytes, Storage::kPrivate, "waiting taps")),
      store_(slots, kStoredTaps) {}

std::vector<uint32_t> LazyContext::fullest_first() const {
  std::vector<uint32_t> slots(store_.n_slots());
  std::iota(slots.begin(), slots.end(), 0U);
  std::ranges::stable_sort(slots, std::greater(),
                           [this](uint32_t slot) { return store_.n_waiting(slot); });
  return slots;
}

uint32_t LazyContext::pack(std::span<const uint32_t> slots, StepShape& shape) {
  parts_.clear();
  std::vector<PackedQuery> queries;
  uint32_t n_rows = 0;
  for (const uint32_t slot : slots) {
    const uint32_t n = std::min(store_.n_waiting(slot), kPassRows - n_rows);
    if (n == 0) continue;
    parts_.push_back({.slot = slot, .n = n});
    queries.push_back({.query = {.slot = slot,
                                 .first_row = n_rows,
                                 .count = n,
                                 .kv_valid = store_.waiting(slot).position},
                       .tokens = {},
                       .sampling = {}});
    n_rows += n;
  }
  shape[pass_index_] =
      control_.pack(queries, 1, kPassRows);  // attends to nothing: no splits matter
  return n_rows;
}

uint64_t LazyContext::offset_of(const Span& rows, uint32_t row) const {
  return rows.address - rows_.scratch.span().address + row * rows_.row_bytes;
}

bool LazyContext::encode_input(Commands& commands) const {
  uint32_t to = 0;
  for (const Part& part : parts_) {
    std::span<const uint32_t> rows = std::span(store_.waiting(part.slot).rows).first(part.n);
    while (!rows.empty()) {
      const uint32_t n = run_length(rows);
      commands.copy(store_rows_, rows.front() * rows_.row_bytes, rows_.scratch,
                    offset_of(rows_.input, to), n * rows_.row_bytes);
      to += n;
      rows = rows.subspan(n);
    }
  }
  return to > 0;
}

void LazyContext::encode_taps(Commands& commands) const {
  const std::span<const uint32_t> taken = store_.taken();
  commands.barrier();
  for (uint32_t from = 0; from < taken.size();) {
    const uint32_t n = run_length(taken.subspan(from));
    commands.copy(rows_.scratch, offset_of(rows_.taps, from), store_rows_,
                  taken[from] * rows_.row_bytes, n * rows_.row_bytes);
    from += n;
  }
}

void LazyContext::done() {
  for (const Part& part : parts_) store_.settle(part.slot, part.n);
  parts_.clear();
}

}  // namespace mtlqwen
