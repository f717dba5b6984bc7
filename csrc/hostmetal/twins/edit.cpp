// edit_logits and restore_logits: metal/edit.metal. The same bits, whatever the input.
#include <math.h>  // INFINITY

#include "twin.h"
#include "wide.h"

namespace mtlqwen::twins {
namespace {

// The drafted tokens before a row, 15 at most; -1 where there is none: no id that a row has.
struct Drafted {
  explicit Drafted(const int32_t* from, uint32_t count) : n(count) {
    for (uint32_t i = 0; i < n; i++) tokens[i] = from[i];
  }

  WideInts tokens = -1;
  uint32_t n;
};

// Where the buffers of one row begin.
struct Row {
  float* logits;
  uint32_t n_valid;
  const EditArgs& edit;
  const TokenEdit* entries;
  Drafted drafted;
};

// Of both kernels, which have the input ids in different buffers.
MTLQWEN_INLINE Row row_of(const Dispatch& dispatch, const EditArgs& edit,
                          const SampleScanArgs& args, const int32_t* input_ids) {
  return {.logits = dispatch.buffer<float>(0) + uint64_t{edit.row} * args.vocab,
          .n_valid = args.n_valid,
          .edit = edit,
          .entries = dispatch.buffer<const TokenEdit>(3) + edit.first_entry,
          .drafted = Drafted(input_ids + edit.first_input, edit.n_drafted)};
}

// The tokens of bad words, and those before the row.
struct Words {
  const BadWord* words;
  const int32_t* tokens;
  const int32_t* tail;
};

// Calls body(id, place, count, entry) for each id of the row that changes: its place among the saved
// logits, how often it was drafted, and its entry or nullptr.
template <class Body>
MTLQWEN_INLINE void for_each_id(const Row& row, const Body& body) {
  WideInts seen = 0;  // drafted tokens that an entry, or an earlier one, stands for
  for (uint32_t i = 0; i < row.edit.n_entries; i++) {
    const TokenEdit& entry = row.entries[i];
    const WideInts same = row.drafted.tokens == static_cast<int32_t>(entry.id);
    seen |= same;
    if (entry.id >= row.n_valid) continue;
    body(entry.id, i, static_cast<uint32_t>(-__builtin_reduce_add(same)), &entry);
  }
  for (uint32_t i = 0; i < row.drafted.n; i++) {
    const auto id = static_cast<uint32_t>(row.drafted.tokens[i]);
    if (seen[i] || id >= row.n_valid) continue;
    const WideInts same = row.drafted.tokens == row.drafted.tokens[i];
    seen |= same;
    body(id, row.edit.n_entries + i, static_cast<uint32_t>(-__builtin_reduce_add(same)), nullptr);
  }
}

float penalised(float x, uint32_t count, const EditArgs& edit) {
  if (count == 0) return x;
  const float scaled = x > 0.0F ? x / edit.repetition - edit.presence
                                : __builtin_fmaf(x, edit.repetition, -edit.presence);
  return __builtin_fmaf(-edit.frequency, static_cast<float>(count), scaled);
}

// Whether the tokens before the row end with those of a bad word.
bool ends_with(const BadWord& word, const Words& all, const Row& row) {
  const uint32_t n_drafted = row.drafted.n;
  const uint32_t n_tail = row.edit.n_tail;
  if (word.n > n_tail + n_drafted) return false;
  for (uint32_t i = 0; i < word.n; i++) {
    const int32_t last = i < n_drafted ? row.drafted.tokens[n_drafted - 1 - i]
                                       : all.tail[n_tail - 1 - (i - n_drafted)];
    if (all.tokens[word.first + word.n - 1 - i] != last) return false;
  }
  return true;
}

bool is_forbidden(const TokenEdit& entry, const Words& all, const Row& row) {
  if (entry.bias == -INFINITY || (row.edit.forbid_stops != 0 && entry.is_stop != 0)) return true;
  for (uint32_t i = 0; i < entry.n_words; i++) {
    if (ends_with(all.words[entry.first_word + i], all, row)) return true;
  }
  return false;
}

MTLQWEN_INLINE void edit_row(const Row& row, float* saved, const Words& all) {
  for_each_id(row, [&](uint32_t id, uint32_t place, uint32_t drafted, const TokenEdit* entry) {
    const float x = row.logits[id];
    saved[place] = x;
    float edited = penalised(x, drafted + (entry ? entry->count : 0), row.edit);
    if (entry) edited = is_forbidden(*entry, all, row) ? MTLQWEN_FORBIDDEN : edited + entry->bias;
    if (__builtin_isfinite(x)) row.logits[id] = edited;
  });
}

}  // namespace
}  // namespace mtlqwen::twins

MTLQWEN_TWIN(edit_logits) {
  using namespace mtlqwen::twins;
  const auto& args = dispatch.args<mtlqwen::SampleScanArgs>(8);
  return for_each_group(dispatch, first, count, [&](uint32_t, uint32_t index) {
    const auto& edit = dispatch.buffer<const mtlqwen::EditArgs>(2)[index];
    const Row row = row_of(dispatch, edit, args, dispatch.buffer<const int32_t>(7));
    const Words words = {
        .words = dispatch.buffer<const mtlqwen::BadWord>(4),
        .tokens = dispatch.buffer<const int32_t>(5),
        .tail = dispatch.buffer<const int32_t>(6) + edit.first_tail,
    };
    edit_row(row, dispatch.buffer<float>(1) + edit.first_saved, words);
  });
}

MTLQWEN_TWIN(restore_logits) {
  using namespace mtlqwen::twins;
  const auto& args = dispatch.args<mtlqwen::SampleScanArgs>(5);
  return for_each_group(dispatch, first, count, [&](uint32_t, uint32_t index) {
    const auto& edit = dispatch.buffer<const mtlqwen::EditArgs>(2)[index];
    const float* saved = dispatch.buffer<const float>(1) + edit.first_saved;
    const Row row = row_of(dispatch, edit, args, dispatch.buffer<const int32_t>(4));
    for_each_id(row, [&](uint32_t id, uint32_t place, uint32_t, const mtlqwen::TokenEdit*) {
      row.logits[id] = saved[place];
    });
  });
}
