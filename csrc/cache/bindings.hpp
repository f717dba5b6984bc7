// Which bundle is bound to which block of which slot, and which are free: pure bookkeeping.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

namespace mtlqwen {

// Invariant: every bundle that exists is free, or bound to exactly one block. The blocks of a slot
// are bound from the first on, without gaps. One thread at a time.
class Bindings {
 public:
  explicit Bindings(uint32_t slots) : bound_(slots) {}

  // Bundles n_total() .. n_total() + n - 1 come into being, free.
  void grow(uint32_t n);
  // Binds free bundles to the next n blocks of a slot and returns them, ascending where they are
  // fresh. The caller has seen n <= n_free(). The span is valid until the slot changes.
  std::span<const uint32_t> bind(uint32_t slot, uint32_t n);
  // Frees all but the first `keep` blocks of a slot. The bundle freed last is bound first.
  void unbind(uint32_t slot, uint32_t keep = 0);

  [[nodiscard]] std::span<const uint32_t> of_slot(uint32_t slot) const { return bound_.at(slot); }
  [[nodiscard]] uint32_t n_blocks(uint32_t slot) const {
    return static_cast<uint32_t>(bound_.at(slot).size());
  }
  [[nodiscard]] uint32_t n_total() const { return n_total_; }
  [[nodiscard]] uint32_t n_free() const { return static_cast<uint32_t>(free_.size()); }
  [[nodiscard]] uint32_t n_bound() const { return n_total_ - n_free(); }

  void check_integrity() const;  // throws std::logic_error that says which invariant fails

 private:
  std::vector<std::vector<uint32_t>> bound_;  // (slots, blocks) bundle ids
  std::vector<uint32_t> free_;                // a stack; room for all, so that unbind() cannot fail
  uint32_t n_total_ = 0;
};

}  // namespace mtlqwen
