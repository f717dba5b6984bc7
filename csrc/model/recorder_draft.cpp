// Recorder: what drafting does between passes (metal/draft.metal).
#include "model/recorder.hpp"

namespace mtlqwen {

void Recorder::place_columns(const Activation& out_rows, const Activation& in_rows,
                             uint32_t first) {
  const ActivationResult placed(out_rows);
  const uint64_t written = placed.int16 ? int16_row_bytes(in_rows.cols) : float_bytes(in_rows.cols);
  add({.kernel = placed.int16 ? "place_columns_int16" : "place_columns",
       .bindings = {out(placed.span), in(in_rows.span)},
       .traffic = {.per_count = float_bytes(in_rows.cols) + written}},
      PlaceArgs{.dim = in_rows.cols, .stride = out_rows.cols, .first = first, .reserved = 0});
}

void Recorder::shift_rows(const Activation& out_rows, const Activation& in_rows, Span banks,
                          const SeedArgs& args) {
  add({.kernel = "shift_rows",
       .bindings = {out(out_rows.span), in(in_rows.span), untracked(banks), in(pass_.queries),
                    in(pass_.row_query)},
       .traffic = {.per_count = float_bytes(2 * args.dim)}},
      args);
}

void Recorder::keep_seeds(Span banks, const Activation& in_rows, const SeedArgs& args) {
  add({.kernel = "keep_seeds",
       .count = Count::kStateWrites,
       .bindings = {untracked(banks), in(in_rows.span), in(pass_.queries), in(pass_.writes)},
       .traffic = {.per_count = float_bytes(2 * args.dim)}},
      args);
}

void Recorder::keep_taped_seeds(Span banks, const Activation& in_rows, const SeedArgs& args) {
  add({.kernel = "keep_taped_seeds",
       .count = Count::kTaped,
       .bindings = {untracked(banks), in(in_rows.span), in(pass_.queries), in(pass_.verifies),
                    in(pass_.accepted)},
       .traffic = {.per_count = float_bytes(2 * args.dim)}},
      args);
}

void Recorder::scatter_ids(Span out_ids, Span ids, Span places, Count count) {
  add({.kernel = "scatter_ids",
       .count = count,
       .bindings = {out(out_ids), in(ids), in(places)},
       .traffic = {.per_count = 3 * sizeof(int32_t)}},
      Span{});
}

void Recorder::verify() {
  add({.kernel = "verify",
       .count = Count::kVerified,
       .bindings = {out(pass_.accepted), in(pass_.input_ids), in(pass_.sampled), in(pass_.queries),
                    in(pass_.verifies), in(pass_.stops)},
       .traffic = {.per_count = sizeof(VerifyArgs) + sizeof(uint32_t),
                   .per_row = 2 * sizeof(int32_t)}},
      Span{});
}

}  // namespace mtlqwen
