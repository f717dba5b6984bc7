// Recorder: attention between its linears.
#include <algorithm>

#include "model/recorder.hpp"

namespace mtlqwen {

namespace {

// What attention_prepare moves for the keys and values of a row.
uint64_t key_value_bytes(const AttentionArgs& args) {
  const uint32_t kv_dim = args.n_kv_heads * args.head_dim;
  return float_bytes(2 * kv_dim + args.rotary_dim) + 2 * kv_dim * sizeof(uint16_t);
}

}  // namespace

void Recorder::attention(const AttentionTensors& t, const AttentionArgs& args) {
  const Span queries = pass_.queries;
  const Span row_query = pass_.row_query;
  const uint32_t query_dim = args.n_heads * args.head_dim;
  const uint32_t gate_dim = args.gated != 0 ? query_dim : 0;
  const uint64_t kv_bytes = uint64_t{2} * args.n_kv_heads * args.head_dim * sizeof(uint16_t);
  const uint64_t partial = float_bytes(query_dim + 2 * args.n_heads);
  add({.kernel = "attention_prepare",
       .groups_x = args.n_heads + args.n_kv_heads,
       .bindings = {out(t.query.span), out(t.planes.key), out(t.planes.value),
                    in(t.query_gate.span), in(t.key.span), in(t.value.span), in(t.q_norm),
                    in(t.k_norm), in(t.rope), in(queries), in(row_query), spoilt(args.place)},
       .traffic = {.per_count = float_bytes(2 * query_dim) + key_value_bytes(args)}},
      args);
  attention_split(t, args,
                  {.per_count = float_bytes(query_dim), .per_split = partial, .per_key = kv_bytes});
  const ActivationResult merged(t.attended);
  add({.kernel = merged.int16 ? "attention_merge_int16" : "attention_merge",
       .groups_x = args.n_heads,
       .bindings = {out(merged.span), in(t.partial), in(t.stats), in(t.query_gate.span),
                    in(queries), in(row_query)},
       .traffic = {.per_count = float_bytes(gate_dim) + merged.row_bytes, .per_split = partial}},
      args);
}

void Recorder::keys_and_values(const KeyValueTensors& t, AttentionArgs args) {
  args.n_heads = 0;
  // In the places of queries stand addresses that nobody follows.
  const Binding no_query = untracked(t.key.span);
  add({.kernel = "attention_prepare",
       .groups_x = args.n_kv_heads,
       .bindings = {no_query, out(t.planes.key), out(t.planes.value), no_query, in(t.key.span),
                    in(t.value.span), untracked(t.k_norm), in(t.k_norm), in(t.rope),
                    in(pass_.queries), in(pass_.row_query), spoilt(args.place)},
       .traffic = {.per_count = key_value_bytes(args)}},
      args);
}

// One row a threadgroup where every query has one row, else as many as fit: both with the same bits.
void Recorder::attention_split(const AttentionTensors& t, const AttentionArgs& args,
                               const Traffic& traffic) {
  // (row, head) pairs of a tile. What a GPU lane keeps of more than 8 does not fit its registers.
  const uint32_t entries = software_ ? 16 : 8;
  const std::string_view tile_kernel =
      software_ ? "attention_split_tile_16" : "attention_split_tile_8";
  const uint32_t tile_rows = std::max(entries / (args.n_heads / args.n_kv_heads), 1U);
  Launch launch{
      .pass = pass_.index, .per_split = true, .variant_by_longest = true, .traffic = traffic};
  launch.variants = {
      {.pipeline = &device_.pipelines().get("attention_split"), .groups_x = args.n_kv_heads},
      {.pipeline = &device_.pipelines().get(tile_kernel),
       .groups_x = args.n_kv_heads,
       .rows_per_group = tile_rows}};
  for (uint32_t longest = 2; longest <= kPassRows; ++longest) launch.variant_of[longest] = 1;
  bind(launch,
       {out(t.partial), out(t.stats), in(t.query.span), in(t.planes.key), in(t.planes.value),
        in(pass_.queries), in(pass_.row_query)},
       args_.put(args));
  program_.add(std::move(launch));
}

}  // namespace mtlqwen
