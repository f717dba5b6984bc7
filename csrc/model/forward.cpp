#include "model/forward.hpp"

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <string>

#include "base/math.hpp"
#include "model/gdn_table.hpp"
#include "model/recorder.hpp"
#include "model/tape.hpp"

namespace mtlqwen {

namespace {

constexpr uint32_t kSampleChunk = 4096;  // ids that one threadgroup of sample_scan looks at
constexpr uint32_t kLaunchesPerLayer = 20;

uint32_t sample_chunks(const ModelConfig& config) {
  return static_cast<uint32_t>(ceil_div(config.vocab, kSampleChunk));
}

uint64_t rope_bytes(const ModelConfig& config, uint32_t context) {
  return uint64_t{context} * config.rotary_dim * sizeof(float);
}

// Of one size for every pass that can come, or as fine as the pass allows.
uint32_t min_blocks_per_split(const Forward::Parts& parts) {
  if (!parts.deterministic) return 1;
  return blocks_per_split(kPassRows, parts.context, 1, kPartialCapacity);
}

// (context, rotary_dim / 2) pairs of cos and sin; angles in double, since position * frequency
// needs more than 24 bits.
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

// Walks the layers from embedding to sampled id and records each launch.
class LayerWalk {
 public:
  LayerWalk(const Forward::Parts& parts, Recorder& recorder, const Activations& activations,
            Span rope)
      : parts_(parts), config_(parts.config), weights_(parts.weights), record_(recorder),
        a_(activations), rope_(rope),
        embedding_(weights_.matrix("embed_tokens.weight", config_.vocab, config_.hidden)) {}

  void run() {
    record_.embed(a_.hidden, embedding_);
    for (size_t i = 0; i < config_.layers.size(); ++i) {
      const std::string prefix = concat("layers.", i, ".");
      if (config_.layers[i] == LayerKind::kAttention) {
        attention(prefix);
      } else {
        gdn(prefix);
      }
      mlp(prefix);
    }
    head();
  }

 private:
  // The normed activation, as the matrices that read it want it.
  Activation norm(const Activation& out, const Activation& in, const std::string& name,
                  std::initializer_list<Matrix> readers, Count count = Count::kRows) {
    const Activation normed = for_readers(out, readers);
    record_.rms_norm(normed, in, weights_.vector(name, in.cols), config_.eps, count);
    return normed;
  }

  Matrix matrix(const std::string& name, const Activation& out, const Activation& in) {
    return weights_.matrix(name, out.cols, in.cols);
  }

  [[nodiscard]] Activation for_readers(Activation in, std::initializer_list<Matrix> readers) const {
    const bool int16 = std::ranges::any_of(
        readers, [&](const Matrix& reader) { return record_.reads_int16(reader); });
    if (!int16) in.int16 = {};
    return in;
  }

  void add_to_residual(const Activation& in, const Matrix& weight) {
    record_.linear(a_.hidden, in, weight, true);
  }

  void attention(const std::string& layer) {
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
    const uint32_t plane = 2 * n_attention_++;
    record_.attention(
        {.query = a_.query,
         .query_gate = a_.query_gate,
         .key = a_.key,
         .value = a_.value,
         .attended = attended,
         .partial = a_.partial,
         .stats = a_.stats,
         .q_norm = weights_.vector(prefix + "q_norm.weight", config_.head_dim),
         .k_norm = weights_.vector(prefix + "k_norm.weight", config_.head_dim),
         .rope = rope_,
         .planes = {.key = parts_.kv_pool.plane(plane), .value = parts_.kv_pool.plane(plane + 1)}},
        {.n_heads = config_.n_heads,
         .n_kv_heads = config_.n_kv_heads,
         .head_dim = config_.head_dim,
         .rotary_dim = config_.rotary_dim,
         .slot_tokens = parts_.kv_pool.slot_tokens(),
         .eps = config_.eps,
         .scale = 1.0F / std::sqrt(static_cast<float>(config_.head_dim)),
         .token_halves = config_.n_kv_heads * config_.head_dim,
         .first_key = 0,
         .window = 0,
         .causal = 1,
         .gated = 1});
    add_to_residual(attended, output);
  }

  void gdn(const std::string& layer) {
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
    const uint32_t index = n_gdn_++;
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
                 .banks = parts_.banks.span(),
                 .tape = {}},
                {.n_k_heads = config_.gdn_k_heads,
                 .n_v_heads = config_.gdn_v_heads,
                 .head_dim = config_.gdn_head_dim,
                 .k_head_tiled = config_.k_head_tiled ? 1U : 0U,
                 .bank_floats = parts_.banks.bank_floats(),
                 .state_offset = index * gdn_state_floats(config_),
                 .conv_offset = config_.n_layers(LayerKind::kGdn) * gdn_state_floats(config_) +
                                index * gdn_conv_floats(config_),
                 .eps = config_.eps,
                 .chunk_rows = gdn_chunk_rows(parts_.device.is_software(), parts_.deterministic),
                 .tape_row_floats = tape_row_floats(config_)});
    add_to_residual(gated, output);
  }

  void mlp(const std::string& layer) {
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

  // Only the rows that are sampled go through the head.
  void head() {
    record_.gather_last_rows(a_.last_hidden, a_.hidden);
    const Matrix output =
        config_.tied ? embedding_ : matrix("lm_head.weight", a_.logits, a_.last_normed);
    const Activation normed =
        norm(a_.last_normed, a_.last_hidden, "norm.weight", {output}, Count::kLogitRows);
    record_.linear(a_.logits, normed, output, false, Count::kLogitRows);
    record_.sample(a_.logits, a_.candidates,
                   {.vocab = config_.vocab,
                    .n_valid = config_.n_valid_tokens,
                    .chunk = kSampleChunk,
                    .n_chunks = sample_chunks(config_)});
  }

  const Forward::Parts& parts_;
  const ModelConfig& config_;
  DeviceWeights& weights_;
  Recorder& record_;
  const Activations& a_;
  Span rope_;
  Matrix embedding_;
  uint32_t n_attention_ = 0;
  uint32_t n_gdn_ = 0;
};

}  // namespace

uint64_t gdn_state_floats(const ModelConfig& config) {
  return uint64_t{config.gdn_v_heads} * config.gdn_head_dim * config.gdn_head_dim;
}

uint64_t gdn_conv_floats(const ModelConfig& config) {
  return uint64_t{kConvTaps - 1} * config.gdn_channels();
}

uint64_t gdn_bank_floats(const ModelConfig& config) {
  return config.n_layers(LayerKind::kGdn) * (gdn_state_floats(config) + gdn_conv_floats(config));
}

Forward::Forward(const Parts& parts)
    : vocab_(parts.config.vocab), min_blocks_per_split_(min_blocks_per_split(parts)),
      control_(parts.device, parts.slots),
      scratch_(parts.device, parts.config,
               {.slots = parts.slots,
                .sample_chunks = sample_chunks(parts.config),
                .int16 = parts.device.prefers_int16() && !parts.deterministic}),
      args_(parts.device, (parts.config.layers.size() + 1) * kLaunchesPerLayer * Arena::kAlignment,
            Storage::kShared, "kernel args"),
      rope_(parts.device, rope_bytes(parts.config, parts.context), Storage::kShared, "rope table"),
      commands_(parts.device) {
  const Span rope = rope_.take(rope_bytes(parts.config, parts.context));
  fill_rope(static_cast<float*>(rope_.at(rope)), parts.config, parts.context);
  Recorder recorder(parts.device, program_, args_, control_.buffers(), parts.deterministic);
  LayerWalk(parts, recorder, *scratch_, rope).run();
}

std::span<const int32_t> Forward::run(std::span<const PackedQuery> queries,
                                      std::span<const BlockCopy> copies) {
  shape_[0] = control_.pack(queries, min_blocks_per_split_, kPartialCapacity);
  commands_.begin();
  encode(copies);
  program_.replay(commands_, shape_);
  encoded_ = Timer::Clock::now();
  commands_.commit_and_wait();
  return control_.sampled_ids();
}

void Forward::encode(std::span<const BlockCopy> copies) {
  for (const BlockCopy& copy : copies) {
    commands_.copy(*copy.buffer, copy.from, *copy.buffer, copy.to, copy.bytes);
  }
  if (!copies.empty()) commands_.barrier();
}

std::span<const float> Forward::logits(uint32_t logit_row) const {
  return {scratch_.logits(logit_row), vocab_};
}

uint64_t Forward::arena_bytes() const {
  return control_.bytes() + scratch_.bytes() + args_.buffer().bytes() + rope_.buffer().bytes();
}

}  // namespace mtlqwen
