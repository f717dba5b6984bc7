#include "model/dflash.hpp"

#include <algorithm>
#include <string>

#include "base/error.hpp"

namespace mtlqwen {

namespace {

constexpr uint8_t kPass = 1;
constexpr uint8_t kContextPass = 2;

ScratchShape block_shape(const DraftedTarget& target) {
  return {
      .rows = kSampledRows, .sampled_rows = kSampledRows, .int16 = target.int16, .gated = false};
}

uint64_t scratch_bytes(const DraftedTarget& target, const DflashConfig& config) {
  const ModelConfig layers = Dflash::layers_of(config);
  const bool int16 = target.int16;
  const uint64_t tap_bytes = pass_rows_bytes(config.n_taps() * config.hidden, int16);
  return layer_scratch_bytes(layers, block_shape(target)) + 2 * tap_bytes +
         pass_rows_bytes(config.hidden, false) + pass_rows_bytes(config.hidden, int16) +
         2 * config.n_layers() * pass_rows_bytes(layers.n_kv_heads * layers.head_dim, false);
}

}  // namespace

uint32_t Dflash::n_planes(const DflashConfig& config, uint64_t token_bytes) {
  return config.n_layers() * PlaneDealer::n_planes(kv_bytes(layers_of(config)), token_bytes);
}

ModelConfig Dflash::layers_of(const DflashConfig& config) {
  ModelConfig layers;
  layers.hidden = config.hidden;
  layers.intermediate = config.intermediate;
  layers.eps = config.eps;
  layers.n_heads = config.n_heads;
  layers.n_kv_heads = config.n_kv_heads;
  layers.head_dim = config.head_dim;
  layers.rotary_dim = config.head_dim;
  layers.rope_theta = config.rope_theta;
  layers.layers.assign(config.n_layers(), LayerKind::kAttention);
  return layers;
}

Dflash::Dflash(const DraftedTarget& target, const DflashConfig& config, DeviceWeights& weights)
    : target_(target), config_(config), layers_(layers_of(config)), weights_(weights),
      control_(target.device,
               {.queries = target.slots, .rows = kSampledRows, .sampled_rows = kSampledRows},
               kPass),
      rope_(target.device, rope_bytes(layers_, target.context), Storage::kShared, "draft rope"),
      scratch_(target.device, scratch_bytes(target, config), Storage::kPrivate, "draft scratch"),
      rope_table_(rope_.take(rope_bytes(layers_, target.context))),
      fc_(weights.matrix("fc.weight", config.hidden, config.n_taps() * config.hidden)),
      a_(take_layer_scratch(scratch_, layers_, block_shape(target))),
      taps_(take_pass_rows(scratch_, fc_.k, target.int16)),
      input_(take_pass_rows(scratch_, fc_.k, target.int16)),
      context_(take_pass_rows(scratch_, config.hidden, false)),
      normed_(take_pass_rows(scratch_, config.hidden, target.int16)),
      recorder_(target.device, target.program, target.args, control_.buffers(),
                target.deterministic),
      lazy_(target.device, target.slots, kContextPass, lazy_rows()),
      context_recorder_(target.device, target.program, target.args, lazy_.buffers(),
                        target.deterministic) {
  fill_rope(static_cast<float*>(rope_.at(rope_table_)), layers_, target.context);
  PlaneDealer dealer(target.kv_pool, target.first_plane);
  for (uint32_t i = 0; i < config.n_layers(); ++i) {
    planes_.push_back(dealer.next(kv_bytes(layers_)));
    keys_.push_back(take_pass_rows(scratch_, layers_.n_kv_heads * layers_.head_dim, false));
    values_.push_back(take_pass_rows(scratch_, keys_.back().cols, false));
  }
  ids_.reserve(kSampledRows);
}

LayerWalk::AttentionLayer Dflash::attention_layer(uint32_t layer) const {
  return {.rope = rope_table_,
          .planes = planes_[layer],
          .slot_tokens = target_.kv_pool.slot_tokens(),
          .token_bytes = target_.kv_pool.layout().token_bytes(),
          .window = config_.layers[layer].window,
          .causal = config_.layers[layer].causal,
          .gated = false};
}

// Rows as fc reads them.
LazyContext::Rows Dflash::lazy_rows() const {
  const bool int16 = taps_.int16.bytes > 0 && recorder_.reads_int16(fc_);
  return {.scratch = scratch_.buffer(),
          .taps = int16 ? taps_.int16 : taps_.span,
          .input = int16 ? input_.int16 : input_.span,
          .row_bytes = int16 ? int16_row_bytes(fc_.k) : uint64_t{fc_.k} * sizeof(float)};
}

void Dflash::record_draft() {
  record_lazy_context();
  LayerWalk walk(layers_, weights_, recorder_, a_);
  recorder_.embed(a_.hidden, target_.embedding);
  for (uint32_t i = 0; i < config_.n_layers(); ++i) {
    const std::string layer = concat("layers.", i, ".");
    walk.attention(layer, attention_layer(i));
    walk.mlp(layer);
  }
  const Activations& target = target_.activations;
  recorder_.gather_last_rows(a_.last_hidden, a_.hidden);
  const Activation normed =
      walk.norm(a_.last_normed, a_.last_hidden, "norm.weight", {target_.head}, Count::kLogitRows);
  recorder_.linear(target.logits, normed, target_.head, false, Count::kLogitRows);
  recorder_.sample(target.logits, target.candidates, sample_args(target_.config));
  recorder_.scatter_ids(target_.pass.input_ids, control_.buffers().sampled,
                        control_.buffers().places, Count::kLogitRows);
}

void Dflash::record_tap(Recorder& recorder, uint32_t layer) {
  const auto tap = std::ranges::find(config_.taps, layer);
  if (tap == config_.taps.end()) return;
  const LayerWalk walk(layers_, weights_, recorder, a_);
  recorder.place_columns(walk.for_readers(taps_, {fc_}), target_.activations.hidden,
                         static_cast<uint32_t>(tap - config_.taps.begin()) * config_.hidden);
}

// All layers' projections, then all their keys and values: within either, nothing waits for another.
void Dflash::record_lazy_context() {
  Recorder& recorder = context_recorder_;
  LayerWalk walk(layers_, weights_, recorder, a_);
  recorder.linear(context_, walk.for_readers(input_, {fc_}), fc_);
  // One norm serves the layers' projections: each of them may want its input otherwise.
  const auto projection = [&](uint32_t layer, const char* name, const Activation& out) {
    return walk.matrix(concat("layers.", layer, ".self_attn.", name, ".weight"), out, normed_);
  };
  const Activation normed =
      walk.norm(normed_, context_, "hidden_norm.weight",
                {projection(0, "k_proj", keys_[0]), projection(0, "v_proj", values_[0])});
  for (uint32_t i = 0; i < config_.n_layers(); ++i) {
    recorder.linear(keys_[i], normed, projection(i, "k_proj", keys_[i]));
    recorder.linear(values_[i], normed, projection(i, "v_proj", values_[i]));
  }
  for (uint32_t i = 0; i < config_.n_layers(); ++i) {
    recorder.keys_and_values(
        {.key = keys_[i],
         .value = values_[i],
         .k_norm =
             weights_.vector(concat("layers.", i, ".self_attn.k_norm.weight"), layers_.head_dim),
         .rope = rope_table_,
         .planes = planes_[i]},
        attention_args(layers_, attention_layer(i)));
  }
}

void Dflash::pack(std::span<const PackedQuery> queries, StepShape& shape) {
  std::vector<PackedQuery> blocks;
  ids_.clear();
  for (const PackedQuery& packed : queries) {
    const Query& query = packed.query;
    if (!query.asks_drafter()) continue;
    const auto first = static_cast<uint32_t>(ids_.size());
    ids_.push_back(packed.tokens.back());
    ids_.insert(ids_.end(), query.width, static_cast<int32_t>(config_.mask_id));
    blocks.push_back({.query = {.sequence = query.sequence,
                                .slot = query.slot,
                                .first_row = first,
                                .count = 1 + query.width,
                                .kv_valid = query.kv_valid,
                                .bank = query.bank},
                      .tokens = std::span(ids_).subspan(first),
                      .sampling = target_.noise ? packed.sampling : Sampling{},
                      .n_proposed = query.width,
                      .position_shift = 0,
                      .first_place = query.first_row + 1});
  }
  shape[kPass] = control_.pack(blocks, target_.min_blocks_per_split, kPartialCapacity);
}

uint64_t Dflash::arena_bytes() const {
  return control_.bytes() + lazy_.bytes() + rope_.buffer().bytes() + scratch_.buffer().bytes();
}

}  // namespace mtlqwen
