// Recorder: Gated DeltaNet between its linears.
#include "model/config.hpp"
#include "model/recorder.hpp"

namespace mtlqwen {

namespace {

constexpr uint32_t kRecurrentDims = 8;  // value dims of a threadgroup
constexpr uint32_t kChunkDims = 32;

}  // namespace

void Recorder::gdn(const GdnTensors& t, const GdnArgs& args) {
  const uint32_t n_heads = 2 * args.n_k_heads + args.n_v_heads;
  const Span queries = pass_.queries;
  const Span writes = pass_.writes;
  const Span row_query = pass_.row_query;
  const uint32_t channels = n_heads * args.head_dim;
  const uint32_t value_dim = args.n_v_heads * args.head_dim;
  const uint64_t taps =
      float_bytes((kConvTaps - 1) * channels);  // rows that a convolution looks back
  // Without a tape its place is taken by memory that nobody will touch.
  const Binding tape = t.tape.bytes == 0 ? untracked(t.banks) : out(t.tape);
  add({.kernel = "gdn_conv",
       .groups_x = n_heads,
       .bindings = {out(t.convolved.span), tape, in(t.qkv.span), in(t.conv), untracked(t.banks),
                    in(queries), in(row_query)},
       .traffic = {.once = t.conv.bytes,
                   .per_count = float_bytes(2 * channels),
                   .per_query = taps}},
      args);
  add({.kernel = "gdn_conv_state",
       .groups_x = n_heads,
       .count = Count::kStateWrites,
       .bindings = {untracked(t.banks), in(t.qkv.span), in(queries), in(writes)},
       .traffic = {.per_count = 2 * taps}},
      args);
  add({.kernel = "gdn_gates",
       .bindings = {out(t.gates.span), in(t.a.span), in(t.b.span), in(t.decay), in(t.dt_bias)},
       .traffic = {.once = t.decay.bytes + t.dt_bias.bytes,
                   .per_count = float_bytes(4 * args.n_v_heads)}},
      args);
  const uint64_t state = float_bytes(value_dim * args.head_dim);
  const Traffic traffic{.per_count = state,
                        .per_row = float_bytes(channels + 2 * args.n_v_heads + value_dim),
                        .per_write = state};
  add({.kernel = "gdn_recurrent",
       .groups_x = value_dim / kRecurrentDims,
       .count = Count::kQueries,
       .bindings = {out(t.delta_out.span), untracked(t.banks), tape, in(t.convolved.span),
                    in(t.gates.span), untracked(t.banks), in(queries), in(writes)},
       .traffic = traffic,
       .serves = {.most = args.chunk_rows - 1}},
      args);
  if (!deterministic_) {
    add({.kernel = "gdn_chunk",
         .groups_x = value_dim / kChunkDims,
         .count = Count::kQueries,
         // delta_out: the rows that gdn_recurrent leaves out.
         .bindings = {untracked(t.delta_out.span), untracked(t.banks), in(t.convolved.span),
                      in(t.gates.span), untracked(t.banks), in(queries), in(writes)},
         .traffic = traffic,
         .serves = {.least = args.chunk_rows}},
        args);
  }
  const ActivationResult gated(t.delta_gated);
  add({.kernel = gated.int16 ? "gdn_norm_int16" : "gdn_norm",
       .groups_x = args.n_v_heads,
       .bindings = {out(gated.span), in(t.delta_out.span), in(t.z.span), in(t.norm)},
       .traffic = {.once = t.norm.bytes,
                   .per_count = float_bytes(2 * value_dim) + gated.row_bytes}},
      args);
}

void Recorder::gdn_replay(Span banks, Span tape, const GdnReplayArgs& args) {
  const GdnArgs& layer = args.layer;
  const uint32_t n_heads = 2 * layer.n_k_heads + layer.n_v_heads;
  const uint32_t value_dim = layer.n_v_heads * layer.head_dim;
  const uint64_t state = float_bytes(value_dim * layer.head_dim);
  const uint64_t taps = float_bytes((kConvTaps - 1) * n_heads * layer.head_dim);
  add({.kernel = "gdn_replay",
       .groups_x = args.n_layers * (value_dim / kRecurrentDims + n_heads),
       .count = Count::kTaped,
       .bindings = {untracked(banks), in(tape), in(pass_.queries), in(pass_.verifies),
                    in(pass_.accepted)},
       .traffic = {.per_count = args.n_layers * 2 * (state + taps)}},
      args);
}

}  // namespace mtlqwen
