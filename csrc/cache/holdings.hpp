// How often one owner holds each of the things that a pool counts references of.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <vector>

#include "base/error.hpp"

namespace mtlqwen {

// Ids are those of the pool. One thread at a time.
class Holdings {
 public:
  // For ids up to this one: add() and remove() cannot fail then.
  void make_room(uint32_t id) {
    if (id >= counts_.size()) counts_.resize(id + size_t{1}, 0);
  }
  void add(uint32_t id) noexcept { n_distinct_ += counts_[id]++ == 0 ? 1 : 0; }
  void remove(uint32_t id) noexcept { n_distinct_ -= --counts_[id] == 0 ? 1 : 0; }

  [[nodiscard]] uint32_t n_distinct() const { return n_distinct_; }
  // (ids that were ever held) references that are this owner's; 0: not held.
  [[nodiscard]] std::span<const uint32_t> counts() const { return counts_; }

  // refs: (ids of the pool), to which this owner's are added.
  void add_to(std::span<uint32_t> refs) const {
    for (uint32_t id = 0; id < counts_.size(); ++id) {
      if (counts_[id] != 0) refs[id] += counts_[id];
    }
  }

  // Distinct things held that have no other owner. O(ids).
  template <class Pool>
  [[nodiscard]] uint32_t n_alone(const Pool& pool) const {
    uint32_t n = 0;
    for (uint32_t id = 0; id < counts_.size(); ++id) {
      n += counts_[id] != 0 && pool.refs(id) == counts_[id] ? 1 : 0;
    }
    return n;
  }

  // Throws std::logic_error unless each is held as often as `counted` (ids) says, and not oftener
  // than the pool knows of. `what`: one of them, in the message.
  template <class Pool>
  void check_integrity(const char* what, std::span<const uint32_t> counted,
                       const Pool& pool) const {
    uint32_t n_distinct = 0;
    for (uint32_t id = 0; id < counts_.size(); ++id) {
      if (counted[id] != counts_[id]) {
        throw std::logic_error(concat("[cache] ", what, " ", id, ": held ", counted[id],
                                      " times, noted ", counts_[id]));
      }
      if (counts_[id] == 0) continue;
      ++n_distinct;
      if (pool.refs(id) < counts_[id]) {
        throw std::logic_error(concat("[cache] ", what, " ", id, ": held ", counts_[id],
                                      " times, but has ", pool.refs(id), " references"));
      }
    }
    if (n_distinct != n_distinct_) {
      throw std::logic_error(
          concat("[cache] ", what, "s: ", n_distinct, " distinct ones held, noted ", n_distinct_));
    }
  }

 private:
  std::vector<uint32_t> counts_;
  uint32_t n_distinct_ = 0;
};

}  // namespace mtlqwen
