// Forward: what a drafter puts off, and when it is done.
#include <algorithm>
#include <array>

#include "base/error.hpp"
#include "gpu/foundation.hpp"
#include "model/forward.hpp"

namespace mtlqwen {

// Before a pass: its own round settles no more rows for those it drafts for than drafts leave behind, lest its time be taken
// for that of any such draft; and the store has room for its rows.
void Forward::make_ready(std::span<const PackedQuery> queries) {
  drafting_.clear();
  uint32_t n_rows = 0;
  for (const PackedQuery& packed : queries) {
    n_rows += packed.query.count;
    if (packed.query.asks_drafter()) drafting_.push_back(packed.query.slot);
  }
  const auto n_waiting = [this] {
    uint32_t n = 0;
    for (const uint32_t slot : drafting_) n += n_unsettled(slot);
    return n;
  };
  const auto n_drafts = static_cast<uint32_t>(drafting_.size());
  const uint32_t own = std::min(kPassRows, n_drafts * (1 + kMostWidth));
  while (n_waiting() > own) settle_some(drafting_);
  while (lazy()->store().n_free() < n_rows) settle_some(lazy()->fullest_first());
}

void Forward::settle_some(std::span<const uint32_t> slots) {
  const AutoreleaseScope scope;
  StepShape shape{};
  const uint32_t n_rows = lazy()->pack(slots, shape);
  settling_.begin();
  if (lazy()->encode_input(settling_)) settling_.barrier();
  program_.replay(settling_, shape);
  settling_.commit_and_wait();
  lazy()->done();
  settled_.rows += n_rows;
  settled_.seconds += settling_.gpu_seconds();
}

bool Forward::settle(uint32_t slot) {
  try {
    while (n_unsettled(slot) > 0) settle_some(std::array{slot});
  } catch (const Error&) {
    return false;
  }
  return true;
}

uint32_t Forward::n_unsettled(uint32_t slot) const {
  return lazy() ? lazy()->store().n_waiting(slot) : 0;
}

void Forward::keep(const Query& query, uint32_t rows) {
  if (lazy()) lazy()->store().keep(query.slot, query.kv_valid, query.first_row, rows);
}

void Forward::drop(uint32_t slot) {
  if (lazy()) lazy()->store().drop(slot);
}

}  // namespace mtlqwen
