#include "model/recorder.hpp"

#include <algorithm>
#include <string>

#include "base/math.hpp"
#include "gpu/platform.hpp"
#include "model/config.hpp"
#include "model/linear_table.hpp"

namespace mtlqwen {

namespace {

uint64_t floats(uint64_t n) { return n * sizeof(float); }

}  // namespace

Recorder::Recorder(Device& device, Program& program, Arena& args, const Control& control,
                   bool deterministic)
    : device_(device), program_(program), args_(args), control_(control),
      software_(device.is_software()), deterministic_(deterministic) {}

void Recorder::bind(Launch& launch, const std::vector<Binding>& bindings, const Span& args) const {
  for (const auto& [span, access] : bindings) {
    launch.buffers.push_back(span.address);
    if (access == Access::kRead || access == Access::kReadWrite) launch.reads.push_back(span);
    if (access == Access::kWrite || access == Access::kReadWrite) launch.writes.push_back(span);
  }
  launch.buffers.push_back(args.address);
  const bool logit_rows = launch.count == Count::kLogitRows;
  launch.buffers.push_back((logit_rows ? control_.logit_pass() : control_.pass()).address);
}

template <class Args>
void Recorder::add(const Simple& simple, const Args& args) {
  Launch launch{.count = simple.count,
                .serves = simple.serves,
                .per_split = simple.per_split,
                .traffic = simple.traffic};
  launch.variants = {
      {.pipeline = &device_.pipelines().get(simple.kernel), .groups_x = simple.groups_x}};
  bind(launch, simple.bindings, args_.put(args));
  program_.add(std::move(launch));
}

void Recorder::embed(const Activation& out_rows, const Matrix& table) {
  const std::string kernel = concat("embed_", info(table.format).kernel_name);
  add({.kernel = kernel,
       .bindings = {out(out_rows.span), in(control_.input_ids()), in(table.span)},
       .traffic = {.per_count = floats(out_rows.cols) + table.span.bytes / table.n}},
      EmbedArgs{.dim = out_rows.cols, .n_tokens = table.n});
}

void Recorder::rms_norm(const Activation& out_rows, const Activation& in_rows, Span weight,
                        float eps, Count count) {
  add({.kernel = "rms_norm",
       .count = count,
       .bindings = {out(out_rows.span), in(in_rows.span), in(weight)},
       .traffic = {.once = weight.bytes, .per_count = floats(2 * in_rows.cols)}},
      NormArgs{.dim = in_rows.cols, .eps = eps});
}

void Recorder::linear(const Activation& out_rows, const Activation& in_rows, const Matrix& matrix,
                      bool accumulate, Count count) {
  Launch launch{.count = count,
                .traffic = {.once = matrix.span.bytes,
                            .per_count = floats(matrix.k + (accumulate ? 2 : 1) * matrix.n)}};
  for (uint32_t rows = 1; rows <= kPassRows; ++rows) {
    const LinearLaunch& choice =
        choose_linear(matrix.format, matrix.n, matrix.k, rows,
                      {.software = software_, .deterministic = deterministic_});
    Constants constants = choice.constants();
    constants.push_back({.index = kAccumulateConstant, .value = accumulate});
    const Variant variant{.pipeline = &device_.pipelines().get(choice.kernel, constants),
                          .groups_x =
                              static_cast<uint32_t>(ceil_div(matrix.n, choice.outputs_per_group)),
                          .rows_per_group = choice.rows_per_group,
                          .threads = choice.threads,
                          .threadgroup_bytes = choice.threadgroup_bytes};
    const auto known = std::find(launch.variants.begin(), launch.variants.end(), variant);
    launch.variant_of[rows] = static_cast<uint8_t>(known - launch.variants.begin());
    if (known == launch.variants.end()) launch.variants.push_back(variant);
  }
  const Binding result{.span = out_rows.span,
                       .access = accumulate ? Access::kReadWrite : Access::kWrite};
  bind(launch, {result, in(in_rows.span), in(matrix.span)},
       args_.put(LinearArgs{.k = matrix.k, .n = matrix.n}));
  program_.add(std::move(launch));
}

void Recorder::swiglu(const Activation& out_rows, const Activation& gate, const Activation& up) {
  add({.kernel = "swiglu",
       .bindings = {out(out_rows.span), in(gate.span), in(up.span)},
       .traffic = {.per_count = floats(3 * gate.cols)}},
      RowsArgs{.dim = gate.cols});
}

void Recorder::gather_last_rows(const Activation& out_rows, const Activation& in_rows) {
  add({.kernel = "gather_rows",
       .count = Count::kLogitRows,
       .bindings = {out(out_rows.span), in(in_rows.span), in(control_.logit_rows())},
       .traffic = {.per_count = floats(2 * in_rows.cols)}},
      RowsArgs{.dim = in_rows.cols});
}

void Recorder::attention(const AttentionTensors& t, const AttentionArgs& args) {
  const Span queries = control_.queries();
  const Span row_query = control_.row_query();
  const uint32_t query_dim = args.n_heads * args.head_dim;
  const uint32_t kv_dim = args.n_kv_heads * args.head_dim;
  const uint64_t kv_bytes = 2 * kv_dim * sizeof(uint16_t);  // a key and a value
  const uint64_t partial = floats(query_dim + 2 * args.n_heads);
  add({.kernel = "attention_prepare",
       .groups_x = args.n_heads + args.n_kv_heads,
       .bindings = {out(t.query.span), out(t.planes.key), out(t.planes.value),
                    in(t.query_gate.span), in(t.key.span), in(t.value.span), in(t.q_norm),
                    in(t.k_norm), in(t.rope), in(queries), in(row_query)},
       .traffic = {.per_count = floats(3 * query_dim + 2 * kv_dim + args.rotary_dim) + kv_bytes}},
      args);
  attention_split(t, args,
                  {.per_count = floats(query_dim), .per_split = partial, .per_key = kv_bytes});
  add({.kernel = "attention_merge",
       .groups_x = args.n_heads,
       .bindings = {out(t.attended.span), in(t.partial), in(t.stats), in(t.query_gate.span),
                    in(queries), in(row_query)},
       .traffic = {.per_count = floats(2 * query_dim), .per_split = partial}},
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
  Launch launch{.per_split = true, .variant_by_longest = true, .traffic = traffic};
  launch.variants = {
      {.pipeline = &device_.pipelines().get("attention_split"), .groups_x = args.n_kv_heads},
      {.pipeline = &device_.pipelines().get(tile_kernel),
       .groups_x = args.n_kv_heads,
       .rows_per_group = tile_rows}};
  for (uint32_t longest = 2; longest <= kPassRows; ++longest) launch.variant_of[longest] = 1;
  bind(launch,
       {out(t.partial), out(t.stats), in(t.query.span), in(t.planes.key), in(t.planes.value),
        in(control_.queries()), in(control_.row_query())},
       args_.put(args));
  program_.add(std::move(launch));
}

void Recorder::gdn(const GdnTensors& t, const GdnArgs& args) {
  const uint32_t n_heads = 2 * args.n_k_heads + args.n_v_heads;
  const Span queries = control_.queries();
  const Span row_query = control_.row_query();
  const uint32_t channels = n_heads * args.head_dim;
  const uint32_t value_dim = args.n_v_heads * args.head_dim;
  const uint64_t taps = floats((kConvTaps - 1) * channels);  // rows that a convolution looks back
  add({.kernel = "gdn_conv",
       .groups_x = n_heads,
       .bindings = {out(t.convolved.span), in(t.qkv.span), in(t.conv), untracked(t.banks),
                    in(queries), in(row_query)},
       .traffic = {.once = t.conv.bytes, .per_count = floats(2 * channels), .per_query = taps}},
      args);
  add({.kernel = "gdn_conv_state",
       .groups_x = n_heads,
       .count = Count::kQueries,
       .bindings = {untracked(t.banks), in(t.qkv.span), in(queries)},
       .traffic = {.per_count = 2 * taps}},
      args);
  add({.kernel = "gdn_gates",
       .bindings = {out(t.gates.span), in(t.a.span), in(t.b.span), in(t.decay), in(t.dt_bias)},
       .traffic = {.once = t.decay.bytes + t.dt_bias.bytes,
                   .per_count = floats(4 * args.n_v_heads)}},
      args);
  constexpr uint32_t kRecurrentDims = 8;  // value dims of a threadgroup
  constexpr uint32_t kChunkDims = 32;
  const Traffic traffic{.per_count = floats(2 * value_dim * args.head_dim),
                        .per_row = floats(channels + 2 * args.n_v_heads + value_dim)};
  add({.kernel = "gdn_recurrent",
       .groups_x = value_dim / kRecurrentDims,
       .count = Count::kQueries,
       .bindings = {out(t.delta_out.span), untracked(t.banks), in(t.convolved.span),
                    in(t.gates.span), untracked(t.banks), in(queries)},
       .traffic = traffic,
       .serves = {.most = args.chunk_rows - 1}},
      args);
  if (!deterministic_) {
    add({.kernel = "gdn_chunk",
         .groups_x = value_dim / kChunkDims,
         .count = Count::kQueries,
         // delta_out: the rows that gdn_recurrent leaves out.
         .bindings = {untracked(t.delta_out.span), untracked(t.banks), in(t.convolved.span),
                      in(t.gates.span), untracked(t.banks), in(queries)},
         .traffic = traffic,
         .serves = {.least = args.chunk_rows}},
        args);
  }
  add({.kernel = "gdn_norm",
       .groups_x = args.n_v_heads,
       .bindings = {out(t.delta_gated.span), in(t.delta_out.span), in(t.z.span), in(t.norm)},
       .traffic = {.once = t.norm.bytes, .per_count = floats(3 * value_dim)}},
      args);
}

void Recorder::sample(const Activation& logits, Span candidates, const SampleScanArgs& args) {
  add({.kernel = "sample_scan",
       .groups_x = args.n_chunks,
       .count = Count::kLogitRows,
       .bindings = {out(candidates), in(logits.span), in(control_.samples())},
       .traffic = {.per_count = floats(args.vocab) + args.n_chunks * sizeof(Candidate)}},
      args);
  add({.kernel = "sample_pick",
       .count = Count::kLogitRows,
       .bindings = {out(control_.sampled()), in(candidates)},
       .traffic = {.per_count = args.n_chunks * sizeof(Candidate) + sizeof(int32_t)}},
      args);
}

}  // namespace mtlqwen
