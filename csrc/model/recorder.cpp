#include "model/recorder.hpp"

#include <algorithm>
#include <string>

#include "base/math.hpp"
#include "gpu/platform.hpp"
#include "model/config.hpp"

namespace mtlqwen {

Recorder::Recorder(Device& device, Program& program, Arena& args, const PassBuffers& pass,
                   bool deterministic)
    : device_(device), program_(program), args_(args), pass_(pass), software_(device.is_software()),
      deterministic_(deterministic), int16_(device.prefers_int16()) {}

LinearDevice Recorder::linear_device(bool int16) const {
  return {.software = software_, .deterministic = deterministic_, .int16 = int16};
}

bool Recorder::reads_int16(const Matrix& matrix) const {
  return choose_linear(matrix.format, matrix.n, matrix.k, 1, linear_device(int16_)).int16;
}

bool Recorder::fuses_mlp(const Matrix& gate, const Matrix& up) const {
  return choose_mlp(gate.format, up.format, gate.n, gate.k, 1, linear_device(int16_)) != nullptr;
}

void Recorder::bind(Launch& launch, const std::vector<Binding>& bindings, const Span& args) const {
  for (const auto& [span, access] : bindings) {
    launch.buffers.push_back(span.address);
    if (access == Access::kRead || access == Access::kReadWrite) launch.reads.push_back(span);
    if (access == Access::kWrite || access == Access::kReadWrite) launch.writes.push_back(span);
  }
  if (args.bytes == 0) return;
  launch.buffers.push_back(args.address);
  const bool logit_rows = launch.count == Count::kLogitRows;
  launch.buffers.push_back((logit_rows ? pass_.logit_pass : pass_.pass).address);
}

void Recorder::add(const Simple& simple, const Span& args) {
  Launch launch{.pass = pass_.index,
                .count = simple.count,
                .serves = simple.serves,
                .per_split = simple.per_split,
                .traffic = simple.traffic};
  launch.variants = {{.pipeline = &device_.pipelines().get(simple.kernel, simple.constants),
                      .groups_x = simple.groups_x}};
  bind(launch, simple.bindings, args);
  program_.add(std::move(launch));
}

void Recorder::embed(const Activation& out_rows, const Matrix& table) {
  const std::string kernel = concat("embed_", info(table.format).kernel_name);
  add({.kernel = kernel,
       .bindings = {out(out_rows.span), in(pass_.input_ids), in(table.span)},
       .traffic = {.per_count = float_bytes(out_rows.cols) + table.span.bytes / table.n},
       .constants = format_constants(table.format)},
      EmbedArgs{.dim = out_rows.cols, .n_tokens = table.n});
}

void Recorder::rms_norm(const Activation& out_rows, const Activation& in_rows, Span weight,
                        float eps, uint32_t place, Count count) {
  const NormArgs args{.dim = in_rows.cols, .eps = eps, .place = place, .reserved = 0};
  Traffic traffic{.once = weight.bytes, .per_count = float_bytes(2 * in_rows.cols)};
  if (out_rows.int16.bytes == 0) {
    return add(
        {.kernel = "rms_norm",
         .count = count,
         .bindings = {out(out_rows.span), in(in_rows.span), in(weight), spoilt(place, count)},
         .traffic = traffic},
        args);
  }
  traffic.per_count += int16_row_bytes(in_rows.cols);
  add({.kernel = "rms_norm_int16",
       .count = count,
       .bindings = {out(out_rows.span), out(out_rows.int16), in(in_rows.span), in(weight),
                    spoilt(place, count)},
       .traffic = traffic},
      args);
}

template <class Choose>
void Recorder::add_variants(Launch& launch, uint32_t n, const Constants& more,
                            const Choose& choose) {
  for (uint32_t rows = 1; rows <= kPassRows; ++rows) {
    const LinearLaunch& choice = choose(rows);
    Constants constants = choice.constants();
    constants.insert(constants.end(), more.begin(), more.end());
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
  const uint64_t in_bytes = int16 ? int16_row_bytes(matrix.k) : float_bytes(matrix.k);
  Launch launch{.pass = pass_.index,
                .count = count,
                .traffic = {.once = matrix.span.bytes,
                            .per_count = in_bytes + float_bytes((accumulate ? 2 : 1) * matrix.n)}};
  Constants constants = format_constants(matrix.format);
  constants.push_back({.index = kAccumulateConstant, .value = accumulate});
  add_variants(launch, matrix.n, constants, [&](uint32_t rows) -> const LinearLaunch& {
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
  Launch launch{.pass = pass_.index,
                .traffic = {.once = gate.span.bytes + up.span.bytes,
                            .per_count = int16_row_bytes(gate.k) + int16_row_bytes(gate.n)}};
  Constants constants = format_constants(gate.format);
  for (const Constant& more : format_constants(up.format, kUpFormatConstant)) {
    constants.push_back(more);
  }
  add_variants(launch, gate.n, constants, [&](uint32_t rows) -> const LinearLaunch& {
    return *choose_mlp(gate.format, up.format, gate.n, gate.k, rows, linear_device(int16_));
  });
  bind(launch, {out(out_rows.int16), in(in_rows.int16), in(gate.span), in(up.span)},
       args_.put(LinearArgs{.k = gate.k, .n = gate.n}));
  program_.add(std::move(launch));
}

void Recorder::swiglu(const Activation& out_rows, const Activation& gate, const Activation& up) {
  add({.kernel = "swiglu",
       .bindings = {out(out_rows.span), in(gate.span), in(up.span)},
       .traffic = {.per_count = float_bytes(3 * gate.cols)}},
      RowsArgs{.dim = gate.cols});
}

void Recorder::gather_last_rows(const Activation& out_rows, const Activation& in_rows) {
  add({.kernel = "gather_rows",
       .count = Count::kLogitRows,
       .bindings = {out(out_rows.span), in(in_rows.span), in(pass_.logit_rows)},
       .traffic = {.per_count = float_bytes(2 * in_rows.cols)}},
      RowsArgs{.dim = in_rows.cols});
}

}  // namespace mtlqwen
