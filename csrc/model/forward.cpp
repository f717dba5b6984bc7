#include "model/forward.hpp"

#include <cmath>
#include <string>

#include "base/math.hpp"
#include "model/gdn_table.hpp"
#include "model/recorder.hpp"

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
      norm(a_.normed, a_.hidden, prefix + "input_layernorm.weight");
      if (config_.layers[i] == LayerKind::kAttention) {
        attention(prefix + "self_attn.");
      } else {
        gdn(prefix + "linear_attn.");
      }
      norm(a_.normed, a_.hidden, prefix + "post_attention_layernorm.weight");
      mlp(prefix + "mlp.");
    }
    head();
  }

 private:
  void norm(const Activation& out, const Activation& in, const std::string& name,
            Count count = Count::kRows) {
    record_.rms_norm(out, in, weights_.vector(name, in.cols), config_.eps, count);
  }

  void linear(const Activation& out, const Activation& in, const std::string& name) {
    record_.linear(out, in, weights_.matrix(name, out.cols, in.cols));
  }

  void add_to_residual(const Activation& in, const std::string& name) {
    record_.linear(a_.hidden, in, weights_.matrix(name, a_.hidden.cols, in.cols), true);
  }

  void attention(const std::string& prefix) {
    linear(a_.query_gate, a_.normed, prefix + "q_proj.weight");
    linear(a_.key, a_.normed, prefix + "k_proj.weight");
    linear(a_.value, a_.normed, prefix + "v_proj.weight");
    const uint32_t plane = 2 * n_attention_++;
    record_.attention(
        {.query = a_.query,
         .query_gate = a_.query_gate,
         .key = a_.key,
         .value = a_.value,
         .attended = a_.attended,
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
         .reserved = 0});
    add_to_residual(a_.attended, prefix + "o_proj.weight");
  }

  void gdn(const std::string& prefix) {
    linear(a_.qkv, a_.normed, prefix + "in_proj_qkv.weight");
    linear(a_.z, a_.normed, prefix + "in_proj_z.weight");
    linear(a_.a, a_.normed, prefix + "in_proj_a.weight");
    linear(a_.b, a_.normed, prefix + "in_proj_b.weight");
    const uint32_t layer = n_gdn_++;
    record_.gdn({.qkv = a_.qkv,
                 .z = a_.z,
                 .a = a_.a,
                 .b = a_.b,
                 .convolved = a_.convolved,
                 .gates = a_.gates,
                 .delta_out = a_.delta_out,
                 .delta_gated = a_.delta_gated,
                 .conv = weights_.vector(prefix + "conv1d.weight",
                                         uint64_t{config_.gdn_channels()} * kConvTaps),
                 .decay = weights_.vector(prefix + "A_log", config_.gdn_v_heads),
                 .dt_bias = weights_.vector(prefix + "dt_bias", config_.gdn_v_heads),
                 .norm = weights_.vector(prefix + "norm.weight", config_.gdn_head_dim),
                 .banks = parts_.banks.span()},
                {.n_k_heads = config_.gdn_k_heads,
                 .n_v_heads = config_.gdn_v_heads,
                 .head_dim = config_.gdn_head_dim,
                 .k_head_tiled = config_.k_head_tiled ? 1U : 0U,
                 .bank_floats = parts_.banks.bank_floats(),
                 .state_offset = layer * gdn_state_floats(config_),
                 .conv_offset = config_.n_layers(LayerKind::kGdn) * gdn_state_floats(config_) +
                                layer * gdn_conv_floats(config_),
                 .eps = config_.eps,
                 .chunk_rows = gdn_chunk_rows(parts_.device.is_software(), parts_.deterministic)});
    add_to_residual(a_.delta_gated, prefix + "out_proj.weight");
  }

  void mlp(const std::string& prefix) {
    linear(a_.gate, a_.normed, prefix + "gate_proj.weight");
    linear(a_.up, a_.normed, prefix + "up_proj.weight");
    record_.swiglu(a_.gated, a_.gate, a_.up);
    add_to_residual(a_.gated, prefix + "down_proj.weight");
  }

  // Only the rows that are sampled go through the head.
  void head() {
    record_.gather_last_rows(a_.last_hidden, a_.hidden);
    norm(a_.last_normed, a_.last_hidden, "norm.weight", Count::kLogitRows);
    const Matrix output = config_.tied
                              ? embedding_
                              : weights_.matrix("lm_head.weight", config_.vocab, config_.hidden);
    record_.linear(a_.logits, a_.last_normed, output, false, Count::kLogitRows);
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
      scratch_(parts.device, parts.config, parts.slots, sample_chunks(parts.config)),
      args_(parts.device, (parts.config.layers.size() + 1) * kLaunchesPerLayer * Arena::kAlignment,
            Storage::kShared, "kernel args"),
      rope_(parts.device, rope_bytes(parts.config, parts.context), Storage::kShared, "rope table"),
      commands_(parts.device) {
  const Span rope = rope_.take(rope_bytes(parts.config, parts.context));
  fill_rope(static_cast<float*>(rope_.at(rope)), parts.config, parts.context);
  Recorder recorder(parts.device, program_, args_, control_, parts.deterministic);
  LayerWalk(parts, recorder, *scratch_, rope).run();
}

std::span<const int32_t> Forward::run(std::span<const PackedQuery> queries) {
  shape_ = control_.pack(queries, min_blocks_per_split_, kPartialCapacity);
  commands_.begin();
  program_.replay(commands_, shape_);
  encoded_ = Timer::Clock::now();
  commands_.commit_and_wait();
  return control_.sampled_ids();
}

std::span<const float> Forward::logits(uint32_t logit_row) const {
  return {scratch_.logits(logit_row), vocab_};
}

uint64_t Forward::arena_bytes() const {
  return control_.bytes() + scratch_.bytes() + args_.buffer().bytes() + rope_.buffer().bytes();
}

}  // namespace mtlqwen
