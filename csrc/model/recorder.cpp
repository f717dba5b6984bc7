#include "model/recorder.hpp"

#include <algorithm>
#include <string>

#include "base/math.hpp"
#include "gpu/platform.hpp"
#include "model/config.hpp"

namespace mtlqwen {

namespace {

uint64_t floats(uint64_t n) { return n * sizeof(float); }

// Where a kernel that writes either floats or int16 rows puts them.
struct Result {
  bool int16;
  Span span;
  uint64_t row_bytes;
};

Result result_of(const Activation& out) {
  const bool int16 = out.int16.bytes != 0;
  return {int16, int16 ? out.int16 : out.span,
          int16 ? int16_row_bytes(out.cols) : floats(out.cols)};
}

}  // namespace

Recorder::Recorder(Device& device, Program& program, Arena& args, const Control& control,
                   bool deterministic)
    : device_(device), program_(program), args_(args), control_(control),
      software_(device.is_software()), deterministic_(deterministic),
      int16_(device.prefers_int16()) {}

LinearDevice Recorder::linear_device(bool int16) const {
  return {.software = software_, .deterministic = deterministic_, .int16 = int16};
}

bool Recorder::reads_int16(const Matrix& matrix) const {
  return choose_linear(matrix.format, matrix.n, matrix.k, 1, linear_device(int16_)).int16;
}

bool Recorder::fuses_mlp(const Matrix& gate, const Matrix& up) const {
  return gate.format == up.format &&
         choose_mlp(gate.format, gate.n, gate.k, 1, linear_device(int16_)) != nullptr;
}

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
  const NormArgs args{.dim = in_rows.cols, .eps = eps};
  Traffic traffic{.once = weight.bytes, .per_count = floats(2 * in_rows.cols)};
  if (out_rows.int16.bytes == 0) {
    return add({.kernel = "rms_norm",
                .count = count,
                .bindings = {out(out_rows.span), in(in_rows.span), in(weight)},
                .traffic = traffic},
               args);
  }
  traffic.per_count += int16_row_bytes(in_rows.cols);
  add({.kernel = "rms_norm_int16",
       .count = count,
       .bindings = {out(out_rows.span), out(out_rows.int16), in(in_rows.span), in(weight)},
       .traffic = traffic},
      args);
}

template <class Choose>
void Recorder::add_variants(Launch& launch, uint32_t n, bool accumulates, const Choose& choose) {
  for (uint32_t rows = 1; rows <= kPassRows; ++rows) {
    const LinearLaunch& choice = choose(rows);
    Constants constants = choice.constants();
    constants.push_back({.index = kAccumulateConstant, .value = accumulates});
    const Variant variant{.pipeline = &device_.pipelines().get(choice.kernel, constants),
                          .groups_x = static_cast<uint32_t>(ceil_div(n, choice.outputs_per_group)),
                          .rows_per_group = choice.rows_per_group,
                          .threads = choice.threads,
                          .threadgroup_bytes = choice.threadgroup_bytes};
    const auto known = std::find(launch.variants.begin(), launch.variants.end(), variant);
    launch.variant_of[rows] = static_cast<uint8_t>(known - launch.variants.begin());
    if (known == launch.variants.end()) launch.variants.push_back(variant);
  }
}

void Recorder::linear(const Activation& out_rows, const Activation& in_rows, const Matrix& matrix,
                      bool accumulate, Count count) {
  const bool int16 = reads_int16(matrix) && in_rows.int16.bytes != 0;
  const uint64_t in_bytes = int16 ? int16_row_bytes(matrix.k) : floats(matrix.k);
  Launch launch{.count = count,
                .traffic = {.once = matrix.span.bytes,
                            .per_count = in_bytes + floats((accumulate ? 2 : 1) * matrix.n)}};
  add_variants(launch, matrix.n, accumulate, [&](uint32_t rows) -> const LinearLaunch& {
    return choose_linear(matrix.format, matrix.n, matrix.k, rows, linear_device(int16));
  });
  const Binding result{.span = out_rows.span,
                       .access = accumulate ? Access::kReadWrite : Access::kWrite};
  bind(launch, {result, in(int16 ? in_rows.int16 : in_rows.span), in(matrix.span)},
       args_.put(LinearArgs{.k = matrix.k, .n = matrix.n}));
  program_.add(std::move(launch));
}

void Recorder::mlp(const Activation& out_rows, const Activation& in_rows, const Matrix& gate,
                   const Matrix& up) {
  Launch launch{.traffic = {.once = gate.span.bytes + up.span.bytes,
                            .per_count = int16_row_bytes(gate.k) + int16_row_bytes(gate.n)}};
  add_variants(launch, gate.n, false, [&](uint32_t rows) -> const LinearLaunch& {
    return *choose_mlp(gate.format, gate.n, gate.k, rows, linear_device(int16_));
  });
  bind(launch, {out(out_rows.int16), in(in_rows.int16), in(gate.span), in(up.span)},
       args_.put(LinearArgs{.k = gate.k, .n = gate.n}));
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
  const Result merged = result_of(t.attended);
  add({.kernel = merged.int16 ? "attention_merge_int16" : "attention_merge",
       .groups_x = args.n_heads,
       .bindings = {out(merged.span), in(t.partial), in(t.stats), in(t.query_gate.span),
                    in(queries), in(row_query)},
       .traffic = {.per_count = floats(query_dim) + merged.row_bytes, .per_split = partial}},
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
  const Span writes = control_.writes();
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
       .count = Count::kStateWrites,
       .bindings = {untracked(t.banks), in(t.qkv.span), in(queries), in(writes)},
       .traffic = {.per_count = 2 * taps}},
      args);
  add({.kernel = "gdn_gates",
       .bindings = {out(t.gates.span), in(t.a.span), in(t.b.span), in(t.decay), in(t.dt_bias)},
       .traffic = {.once = t.decay.bytes + t.dt_bias.bytes,
                   .per_count = floats(4 * args.n_v_heads)}},
      args);
  constexpr uint32_t kRecurrentDims = 8;  // value dims of a threadgroup
  constexpr uint32_t kChunkDims = 32;
  const uint64_t state = floats(value_dim * args.head_dim);
  const Traffic traffic{.per_count = state,
                        .per_row = floats(channels + 2 * args.n_v_heads + value_dim),
                        .per_write = state};
  add({.kernel = "gdn_recurrent",
       .groups_x = value_dim / kRecurrentDims,
       .count = Count::kQueries,
       .bindings = {out(t.delta_out.span), untracked(t.banks), in(t.convolved.span),
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
  const Result gated = result_of(t.delta_gated);
  add({.kernel = gated.int16 ? "gdn_norm_int16" : "gdn_norm",
       .groups_x = args.n_v_heads,
       .bindings = {out(gated.span), in(t.delta_out.span), in(t.z.span), in(t.norm)},
       .traffic = {.once = t.norm.bytes, .per_count = floats(2 * value_dim) + gated.row_bytes}},
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
