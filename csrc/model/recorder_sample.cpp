// From logits to a chosen id.
#include "model/recorder.hpp"

#include <algorithm>
#include <utility>

namespace mtlqwen {

namespace {

constexpr uint32_t kMostThreads = 1024;

}  // namespace

void Recorder::edit_logits(const Activation& logits, const EditSpans& edits,
                           const SampleScanArgs& args) {
  add({.kernel = "edit_logits",
       .count = Count::kEdits,
       .bindings = {in_out(logits.span), out(edits.saved), in(edits.args), in(edits.entries),
                    in(edits.words), in(edits.word_tokens), in(edits.tails), in(pass_.input_ids)},
       .traffic = {.per_count = sizeof(EditArgs)}},
      args);
}

void Recorder::restore_logits(const Activation& logits, const EditSpans& edits,
                              const SampleScanArgs& args) {
  add({.kernel = "restore_logits",
       .count = Count::kEdits,
       .bindings = {in_out(logits.span), in(edits.saved), in(edits.args), in(edits.entries),
                    in(pass_.input_ids)},
       .traffic = {.per_count = sizeof(EditArgs)}},
      args);
}

// One threadgroup a row, of as many threads as there may be: a row is all that they share.
void Recorder::add_rowwise(const Simple& simple, const SampleScanArgs& args) {
  const Pipeline& pipeline = device_.pipelines().get(simple.kernel);
  Launch launch{.pass = pass_.index, .count = simple.count, .traffic = simple.traffic};
  launch.variants = {
      {.pipeline = &pipeline, .threads = std::min(kMostThreads, pipeline.max_threads)}};
  bind(launch, simple.bindings, args_.put(args));
  program_.add(std::move(launch));
}

void Recorder::filter(const Activation& logits, const SampleScanArgs& args) {
  add_rowwise({.kernel = "filter_rows",
               .count = Count::kFilters,
               .bindings = {out(pass_.kept), in(logits.span), in(pass_.samples), in(pass_.filters),
                            in(pass_.masks)},
               .traffic = {.per_count = float_bytes(args.vocab)}},
              args);
}

void Recorder::sample(const Activation& logits, Span candidates, const SampleScanArgs& args) {
  add({.kernel = "sample_scan",
       .groups_x = args.n_chunks,
       .count = Count::kLogitRows,
       .bindings = {out(candidates), in(logits.span), in(pass_.samples), in(pass_.kept),
                    in(pass_.masks)},
       .traffic = {.per_count = float_bytes(args.vocab) + args.n_chunks * sizeof(Candidate)}},
      args);
  add({.kernel = "sample_pick",
       .count = Count::kLogitRows,
       .bindings = {out(pass_.sampled), in(candidates)},
       .traffic = {.per_count = args.n_chunks * sizeof(Candidate) + sizeof(int32_t)}},
      args);
}

void Recorder::logprobs(const Activation& logits, const SampleScanArgs& args) {
  add_rowwise({.kernel = "logprob_rows",
               .count = Count::kLogprobs,
               .bindings = {out(pass_.chosen), out(pass_.likeliest), in(logits.span),
                            in(pass_.sampled), in(pass_.logprobs)},
               .traffic = {.per_count = float_bytes(args.vocab)}},
              args);
}

}  // namespace mtlqwen
