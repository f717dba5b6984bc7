#include "model/layer_walk.hpp"

#include <algorithm>
#include <cmath>

#include "base/error.hpp"
#include "model/logit_edits.hpp"
#include "model/tape.hpp"

namespace mtlqwen {

uint64_t rope_bytes(const ModelConfig& config, uint32_t context) {
  return uint64_t{context} * config.rotary_dim * sizeof(float);
}

// Angles in double, since position * frequency needs more than 24 bits.
void fill_rope(float* table, const ModelConfig& config, uint32_t context) {
  const uint32_t half = config.rotary_dim / 2;
  for (uint32_t i = 0; i < half; ++i) {
    const double frequency = std::pow(config.rope_theta, -2.0 * i / config.rotary_dim);
    for (uint32_t position = 0; position < context; ++position) {
      float* pair = table + 2 * (uint64_t{position} * half + i);
      pair[0] = static_cast<float>(std::cos(position * frequency));
      pair[1] = static_cast<float>(std::sin(position * frequency));
    }
  }
}

KvPlanes PlaneDealer::next(uint64_t kv_bytes) {
  const Span plane = kv_pool_.plane(next_++);
  if (n_planes(kv_bytes, kv_pool_.layout().token_bytes()) == 1) {
    return {.key = plane, .value = plane.part(kv_bytes, plane.bytes - kv_bytes)};
  }
  return {.key = plane, .value = kv_pool_.plane(next_++)};
}

AttentionArgs attention_args(const ModelConfig& config, const LayerWalk::AttentionLayer& at,
                             uint32_t place) {
  return {.n_heads = config.n_heads,
          .n_kv_heads = config.n_kv_heads,
          .head_dim = config.head_dim,
          .rotary_dim = config.rotary_dim,
          .slot_tokens = at.slot_tokens,
          .eps = config.eps,
          .scale = 1.0F / std::sqrt(static_cast<float>(config.head_dim)),
          .token_halves = static_cast<uint32_t>(at.token_bytes / sizeof(uint16_t)),
          .first_key = at.first_key,
          .window = at.window,
          .causal = at.causal ? 1U : 0U,
          .gated = at.gated ? 1U : 0U,
          .place = place,
          .reserved = {}};
}

GdnArgs gdn_args(const ModelConfig& config, const LayerWalk::GdnLayer& at) {
  return {.n_k_heads = config.gdn_k_heads,
          .n_v_heads = config.gdn_v_heads,
          .head_dim = config.gdn_head_dim,
          .k_head_tiled = config.k_head_tiled ? 1U : 0U,
          .bank_floats = at.bank_floats,
          .state_offset = at.index * gdn_state_floats(config),
          .conv_offset = config.n_layers(LayerKind::kGdn) * gdn_state_floats(config) +
                         at.index * gdn_conv_floats(config),
          .eps = config.eps,
          .chunk_rows = at.chunk_rows,
          .tape_row_floats = tape_row_floats(config)};
}

SampleScanArgs sample_args(const ModelConfig& config) {
  return {.vocab = config.vocab,
          .n_valid = config.n_valid_tokens,
          .chunk = kSampleChunk,
          .n_chunks = sample_chunks(config.vocab),
          .mask_words = mask_words(config.n_valid_tokens),
          .reserved = 0};
}

Activation LayerWalk::norm(const Activation& out, const Activation& in, const std::string& name,
                           std::initializer_list<Matrix> readers, Count count) {
  const Activation normed = for_readers(out, readers);
  record_.rms_norm(normed, in, weights_.vector(name, in.cols), config_.eps, place(), count);
  ++n_places_;
  return normed;
}

Matrix LayerWalk::matrix(const std::string& name, const Activation& out, const Activation& in) {
  return weights_.matrix(name, out.cols, in.cols);
}

Activation LayerWalk::for_readers(Activation in, std::initializer_list<Matrix> readers) const {
  const bool int16 = std::ranges::any_of(
      readers, [&](const Matrix& reader) { return record_.reads_int16(reader); });
  if (!int16) in.int16 = {};
  return in;
}

void LayerWalk::add_to_residual(const Activation& in, const Matrix& weight) {
  record_.linear(a_.hidden, in, weight, true);
}

void LayerWalk::attention(const std::string& layer, const AttentionLayer& at) {
  const std::string prefix = layer + "self_attn.";
  const Matrix query = matrix(prefix + "q_proj.weight", a_.query_gate, a_.normed);
  const Matrix key = matrix(prefix + "k_proj.weight", a_.key, a_.normed);
  const Matrix value = matrix(prefix + "v_proj.weight", a_.value, a_.normed);
  const Matrix output = matrix(prefix + "o_proj.weight", a_.hidden, a_.attended);
  const Activation normed =
      norm(a_.normed, a_.hidden, layer + "input_layernorm.weight", {query, key, value});
  record_.linear(a_.query_gate, normed, query);
  record_.linear(a_.key, normed, key);
  record_.linear(a_.value, normed, value);
  const Activation attended = for_readers(a_.attended, {output});
  record_.attention({.query = a_.query,
                     .query_gate = a_.query_gate,
                     .key = a_.key,
                     .value = a_.value,
                     .attended = attended,
                     .partial = a_.partial,
                     .stats = a_.stats,
                     .q_norm = weights_.vector(prefix + "q_norm.weight", config_.head_dim),
                     .k_norm = weights_.vector(prefix + "k_norm.weight", config_.head_dim),
                     .rope = at.rope,
                     .planes = at.planes},
                    attention_args(config_, at, place()));
  add_to_residual(attended, output);
}

void LayerWalk::gdn(const std::string& layer, const GdnLayer& at) {
  const std::string prefix = layer + "linear_attn.";
  const Matrix qkv = matrix(prefix + "in_proj_qkv.weight", a_.qkv, a_.normed);
  const Matrix z = matrix(prefix + "in_proj_z.weight", a_.z, a_.normed);
  const Matrix a = matrix(prefix + "in_proj_a.weight", a_.a, a_.normed);
  const Matrix b = matrix(prefix + "in_proj_b.weight", a_.b, a_.normed);
  const Matrix output = matrix(prefix + "out_proj.weight", a_.hidden, a_.delta_gated);
  const Activation normed =
      norm(a_.normed, a_.hidden, layer + "input_layernorm.weight", {qkv, z, a, b});
  record_.linear(a_.qkv, normed, qkv);
  record_.linear(a_.z, normed, z);
  record_.linear(a_.a, normed, a);
  record_.linear(a_.b, normed, b);
  const Activation gated = for_readers(a_.delta_gated, {output});
  record_.gdn({.qkv = a_.qkv,
               .z = a_.z,
               .a = a_.a,
               .b = a_.b,
               .convolved = a_.convolved,
               .gates = a_.gates,
               .delta_out = a_.delta_out,
               .delta_gated = gated,
               .conv = weights_.vector(prefix + "conv1d.weight",
                                       uint64_t{config_.gdn_channels()} * kConvTaps),
               .decay = weights_.vector(prefix + "A_log", config_.gdn_v_heads),
               .dt_bias = weights_.vector(prefix + "dt_bias", config_.gdn_v_heads),
               .norm = weights_.vector(prefix + "norm.weight", config_.gdn_head_dim),
               .banks = at.banks,
               .tape = at.tape},
              gdn_args(config_, at));
  add_to_residual(gated, output);
}

void LayerWalk::mlp(const std::string& layer) {
  const std::string prefix = layer + "mlp.";
  const Matrix gate = matrix(prefix + "gate_proj.weight", a_.gate, a_.normed);
  const Matrix up = matrix(prefix + "up_proj.weight", a_.up, a_.normed);
  const Matrix down = matrix(prefix + "down_proj.weight", a_.hidden, a_.gated);
  const Activation normed =
      norm(a_.normed, a_.hidden, layer + "post_attention_layernorm.weight", {gate, up});
  if (record_.fuses_mlp(gate, up) && record_.reads_int16(down)) {
    record_.mlp(a_.gated, normed, gate, up);
    return add_to_residual(a_.gated, down);
  }
  record_.linear(a_.gate, normed, gate);
  record_.linear(a_.up, normed, up);
  record_.swiglu(a_.gated, a_.gate, a_.up);
  add_to_residual({.span = a_.gated.span, .cols = a_.gated.cols}, down);
}

uint64_t gdn_state_floats(const ModelConfig& config) {
  return uint64_t{config.gdn_v_heads} * config.gdn_head_dim * config.gdn_head_dim;
}

uint64_t gdn_conv_floats(const ModelConfig& config) {
  return uint64_t{kConvTaps - 1} * config.gdn_channels();
}

uint64_t gdn_bank_floats(const ModelConfig& config) {
  return config.n_layers(LayerKind::kGdn) * (gdn_state_floats(config) + gdn_conv_floats(config));
}

}  // namespace mtlqwen
