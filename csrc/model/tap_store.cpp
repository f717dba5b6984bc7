#include "model/tap_store.hpp"

#include <algorithm>
#include <functional>
#include <numeric>
#include <stdexcept>

#include "base/error.hpp"

namespace mtlqwen {

TapStore::TapStore(uint32_t slots, uint32_t capacity) : waiting_(slots), free_(capacity) {
  std::iota(free_.begin(), free_.end(), 0U);  // ascending: a heap
}

void TapStore::put_back(uint32_t row) {
  free_.push_back(row);
  std::ranges::push_heap(free_, std::greater());
}

void TapStore::put_back_taken() {
  for (const uint32_t row : taken_) {
    if (row != kKept) put_back(row);
  }
  taken_.clear();
  n_loose_ = 0;
}

void TapStore::take(uint32_t n) {
  put_back_taken();
  if (n > free_.size()) {
    throw std::logic_error(
        concat("[model] taps: no room (got ", free_.size(), " free rows, want ", n, ")"));
  }
  for (uint32_t i = 0; i < n; ++i) {
    std::ranges::pop_heap(free_, std::greater());
    taken_.push_back(free_.back());
    free_.pop_back();
  }
  n_loose_ = n;
}

void TapStore::keep(uint32_t slot, uint32_t position, uint32_t first, uint32_t n) {
  Waiting& waiting = waiting_.at(slot);
  if (waiting.rows.empty()) waiting.position = position;
  if (waiting.position + waiting.rows.size() != position) {
    throw std::logic_error(concat("[model] taps: a gap in slot ", slot, " (got position ", position,
                                  ", want ", waiting.position + waiting.rows.size(), ")"));
  }
  for (uint32_t& row : std::span(taken_).subspan(first, n)) {
    waiting.rows.push_back(row);
    row = kKept;
  }
  n_loose_ -= n;
}

void TapStore::settle(uint32_t slot, uint32_t n) {
  Waiting& waiting = waiting_.at(slot);
  const auto end = waiting.rows.begin() + n;
  std::for_each(waiting.rows.begin(), end, [this](uint32_t row) { put_back(row); });
  waiting.rows.erase(waiting.rows.begin(), end);
  waiting.position += n;
}

void TapStore::drop(uint32_t slot) { settle(slot, n_waiting(slot)); }

}  // namespace mtlqwen
