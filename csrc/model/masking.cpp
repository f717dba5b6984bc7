// Forward: a pass with rows that a grammar holds. Their masks need the drafts, and choose needs the
// masks, so it is cut into rounds: draft, forward, choose. Masks are filled while forward runs.
#include <algorithm>
#include <utility>

#include "base/error.hpp"
#include "gpu/foundation.hpp"
#include "model/forward.hpp"
#include "model/logit_edits.hpp"

namespace mtlqwen {

namespace {

bool holds_only(std::span<const uint32_t> mask, std::span<const int32_t> ids) {
  for (size_t word = 0; word < mask.size(); ++word) {
    uint32_t rest = mask[word];
    if (rest == 0) continue;
    for (const int32_t id : ids) {
      const auto bit = static_cast<uint32_t>(id);
      if (bit / 32 == word) rest &= ~(1U << (bit % 32));
    }
    if (rest != 0) return false;
  }
  return true;
}

}  // namespace

std::vector<std::exception_ptr> Forward::run_held(std::span<const PackedQuery> queries,
                                                  std::span<const BlockCopy> copies,
                                                  const FillMasks& fill) {
  const bool drafts = std::ranges::any_of(
      queries, [](const PackedQuery& packed) { return packed.query.asks_drafter(); });
  LaunchRange forward{.first = 0, .last = choice_};
  if (drafts) {
    encode_round({.first = 0, .last = target_}, copies);
    finish_round();
    forward.first = target_;
    copies = {};
  }
  encode_round(forward, copies);
  encoded_ = Timer::Clock::now();
  commands_.commit();
  std::vector<std::exception_ptr> errors;
  std::exception_ptr failure;
  try {
    errors = fill(control_.mask_items(), control_.masks());
  } catch (...) {
    failure = std::current_exception();
  }
  try {
    wait_for_round();
  } catch (const Aborted&) {
    if (!failure) throw;  // else what stopped the function would get lost
  }
  if (failure) throw MasksFailed{failure};
  narrow_masks(queries);
  encode_round({.first = choice_}, {});
  if (lazy()) lazy()->encode_taps(commands_);
  finish_round();
  return errors;
}

// The other options of a held text: ids that they forbid, too, and a least length that must not
// forbid the last that is left.
void Forward::narrow_masks(std::span<const PackedQuery> queries) {
  const MaskTable masks = control_.masks();
  const std::span<const MaskItem> items = control_.mask_items();
  uint32_t first_logit = 0;
  size_t n_items = 0;
  for (const PackedQuery& packed : queries) {
    const uint32_t n_rows = packed.n_sampled();
    if (packed.held && n_rows > 0) {
      const uint32_t first = items[n_items++].first_row;
      for (uint32_t i = 0; i < n_rows && packed.edits != nullptr; ++i) {
        const std::span<uint32_t> row = masks.row(first + i);
        const std::span<const uint32_t> allowed = packed.edits->mask();
        for (size_t word = 0; word < allowed.size(); ++word) row[word] &= allowed[word];
        if (packed.edits->forbids_stops(packed.n_generated + i) &&
            holds_only(row, packed.stop_ids)) {
          edits_.allow_stops(first_logit + packed.query.n_told + i);
        }
      }
    }
    first_logit += packed.n_logits();
  }
}

void Forward::encode_round(const LaunchRange& range, std::span<const BlockCopy> copies) {
  const AutoreleaseScope scope;
  commands_.begin();
  if (range.first == 0) encode(copies);
  program_.replay(commands_, shape_, range);
  rounds_.push_back({.range = range});
}

void Forward::finish_round() {
  commands_.commit();
  wait_for_round();
}

void Forward::wait_for_round() {
  commands_.wait();
  pass_seconds_ += commands_.gpu_seconds();
  const auto marks = commands_.marks();
  rounds_.back().marks.assign(marks.begin(), marks.end());
}

std::vector<KernelGroup> Forward::kernels() const {
  std::vector<KernelGroup> groups;
  for (const Round& round : rounds_) {
    std::ranges::move(program_.groups(shape_, round.marks, round.range),
                      std::back_inserter(groups));
  }
  return groups;
}

}  // namespace mtlqwen
