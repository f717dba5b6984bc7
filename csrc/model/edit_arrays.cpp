#include "model/edit_arrays.hpp"

#include <algorithm>
#include <utility>

#include "base/math.hpp"
#include "model/logit_edits.hpp"
#include "model/program.hpp"

namespace mtlqwen {

namespace {

constexpr uint32_t kLeast = 1024;  // elements of an array

// A part of a prompt behind which nothing is sampled has none.
bool has_edits(const PackedQuery& packed) {
  return packed.edits != nullptr && packed.n_sampled() > 0;
}

}  // namespace

EditArrays::EditArrays(Device& device, uint32_t sampled_rows)
    : device_(device), sampled_rows_(sampled_rows) {
  lay_out({.saved = kLeast,
           .entries = kLeast,
           .words = kLeast,
           .word_tokens = kLeast,
           .tails = kLeast});
}

void EditArrays::lay_out(const Sizes& sizes) {
  const auto lay_out = [&](auto take) {
    return EditSpans{.args = take(sampled_rows_ * sizeof(EditArgs)),
                     .saved = take(sizes.saved * sizeof(float)),
                     .entries = take(sizes.entries * sizeof(TokenEdit)),
                     .words = take(sizes.words * sizeof(BadWord)),
                     .word_tokens = take(sizes.word_tokens * sizeof(int32_t)),
                     .tails = take(sizes.tails * sizeof(int32_t))};
  };
  uint64_t bytes = 0;
  lay_out([&](uint64_t part) {
    bytes += Arena::padded(part);
    return Span{};
  });
  Arena arena(device_, bytes, Storage::kShared, "edits of logits");
  spans_ = lay_out([&](uint64_t part) { return arena.take(part); });
  arena_.emplace(std::move(arena));
  room_ = sizes;
}

EditArrays::Sizes EditArrays::sizes_of(std::span<const PackedQuery> queries) {
  Sizes sizes;
  for (const PackedQuery& packed : queries) {
    if (!has_edits(packed)) continue;
    const auto n_entries = static_cast<uint32_t>(packed.edits->entries().size());
    const uint32_t rows = packed.n_sampled();
    sizes.saved += rows * (n_entries + packed.query.width);
    sizes.entries += n_entries;
    sizes.words += static_cast<uint32_t>(packed.edits->words().size());
    sizes.word_tokens += static_cast<uint32_t>(packed.edits->word_tokens().size());
    sizes.tails += static_cast<uint32_t>(packed.tail.size());
  }
  return sizes;
}

void EditArrays::grow(const Sizes& wanted, Program& program) {
  const auto room = [](uint32_t has, uint32_t wants) { return wants > has ? 2 * wants : has; };
  const Sizes sizes{.saved = room(room_.saved, wanted.saved),
                    .entries = room(room_.entries, wanted.entries),
                    .words = room(room_.words, wanted.words),
                    .word_tokens = room(room_.word_tokens, wanted.word_tokens),
                    .tails = room(room_.tails, wanted.tails)};
  if (sizes == room_) return;
  const EditSpans before = spans_;
  lay_out(sizes);
  program.rebind(before.args, spans_.args);
  program.rebind(before.saved, spans_.saved);
  program.rebind(before.entries, spans_.entries);
  program.rebind(before.words, spans_.words);
  program.rebind(before.word_tokens, spans_.word_tokens);
  program.rebind(before.tails, spans_.tails);
}

uint32_t EditArrays::pack(std::span<const PackedQuery> queries, Program& program) {
  grow(sizes_of(queries), program);
  n_edits_ = 0;
  used_ = {};
  uint32_t first_logit = 0;
  for (const PackedQuery& packed : queries) {
    if (has_edits(packed)) add_query(packed, first_logit + packed.query.n_told);
    first_logit += packed.n_logits();
  }
  return n_edits_;
}

// Its rows share all arrays but what is saved. A word's place is in the pass, not in the request.
void EditArrays::add_query(const PackedQuery& packed, uint32_t first_logit) {
  const LogitEdits& edits = *packed.edits;
  const uint32_t first_token = put(spans_.word_tokens, used_.word_tokens, edits.word_tokens());
  const uint32_t first_word = put(spans_.words, used_.words, edits.words());
  for (BadWord& word : std::span(at<BadWord>(spans_.words) + first_word, edits.words().size())) {
    word.first += first_token;
  }
  const uint32_t first_entry = put(spans_.entries, used_.entries, edits.entries());
  for (TokenEdit& entry :
       std::span(at<TokenEdit>(spans_.entries) + first_entry, edits.entries().size())) {
    entry.first_word += first_word;
  }
  const uint32_t first_tail = put(spans_.tails, used_.tails, packed.tail);
  const Query& query = packed.query;
  for (uint32_t i = 0; i < packed.n_sampled(); ++i) {
    if (!edits.edits(packed.n_generated + i)) continue;
    EditArgs args = edits.args(packed.n_generated + i);
    args.row = first_logit + i;
    args.first_entry = first_entry;
    args.first_input = query.first_row + query.count - query.width;
    args.n_drafted = i;
    args.first_saved = used_.saved;
    args.first_tail = first_tail;
    args.n_tail = static_cast<uint32_t>(packed.tail.size());
    at<EditArgs>(spans_.args)[n_edits_++] = args;
    used_.saved += args.n_entries + args.n_drafted;
  }
}

void EditArrays::allow_stops(uint32_t logit_row) {
  for (EditArgs& args : std::span(at<EditArgs>(spans_.args), n_edits_)) {
    if (args.row == logit_row) args.forbid_stops = 0;
  }
}

template <class T>
uint32_t EditArrays::put(const Span& array, uint32_t& n, std::span<const T> items) {
  const uint32_t first = n;
  std::ranges::copy(items, at<T>(array) + first);
  n += static_cast<uint32_t>(items.size());
  return first;
}

}  // namespace mtlqwen
