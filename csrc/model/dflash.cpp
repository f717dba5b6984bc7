#include "model/dflash.hpp"

#include <algorithm>
#include <string>

#include "base/error.hpp"

namespace mtlqwen {

namespace {

constexpr uint8_t kPass = 1;

ScratchShape block_shape(const DraftedTarget& target) {
  return {.rows = kSampledRows,
          .sampled_rows = kSampledRows,
          .int16 = target.device.prefers_int16() && !target.deterministic,
          .gated = false};
}

// Of what is made of the target's rows: taps, their projection, its norm, a layer's keys and values.
template <class Take>
void lay_out_context(const ModelConfig& layers, uint32_t n_taps, bool int16, Take take) {
  const uint32_t hidden = layers.hidden;
  const uint32_t kv = layers.n_kv_heads * layers.head_dim;
  take(n_taps * hidden, int16);
  take(hidden, false);
  take(hidden, int16);
  take(kv, false);
  take(kv, false);
}

uint64_t row_bytes(uint32_t cols, bool int16) {
  return Arena::padded(kPassRows * float_bytes(cols)) +
         (int16 ? Arena::padded(kPassRows * int16_row_bytes(cols)) : 0);
}

uint64_t scratch_bytes(const DraftedTarget& target, const ModelConfig& layers, uint32_t n_taps) {
  const ScratchShape shape = block_shape(target);
  uint64_t bytes = layer_scratch_bytes(layers, shape);
  lay_out_context(layers, n_taps, shape.int16,
                  [&](uint32_t cols, bool int16) { bytes += row_bytes(cols, int16); });
  return bytes;
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
      scratch_(target.device,
               scratch_bytes(target, layers_, static_cast<uint32_t>(config.taps.size())),
               Storage::kPrivate, "draft scratch"),
      rope_table_(rope_.take(rope_bytes(layers_, target.context))),
      a_(take_layer_scratch(scratch_, layers_, block_shape(target))),
      recorder_(target.device, target.program, target.args, control_.buffers(),
                target.deterministic) {
  fill_rope(static_cast<float*>(rope_.at(rope_table_)), layers_, target.context);
  PlaneDealer dealer(target.kv_pool, target.first_plane);
  for (uint32_t i = 0; i < config.n_layers(); ++i)
    planes_.push_back(dealer.next(kv_bytes(layers_)));
  Activation* parts[] = {&taps_, &context_, &normed_, &key_, &value_};
  Activation** next = parts;
  lay_out_context(layers_, static_cast<uint32_t>(config.taps.size()), block_shape(target).int16,
                  [&](uint32_t cols, bool int16) {
                    **next++ = {.span = scratch_.take(kPassRows * float_bytes(cols)),
                                .cols = cols,
                                .int16 = int16 ? scratch_.take(kPassRows * int16_row_bytes(cols))
                                               : Span{}};
                  });
  ids_.reserve(kSampledRows);
}

LayerWalk::Sight Dflash::sight(uint32_t layer) const {
  return {.rope = rope_table_,
          .planes = planes_[layer],
          .slot_tokens = target_.kv_pool.slot_tokens(),
          .token_bytes = target_.kv_pool.layout().token_bytes(),
          .window = config_.layers[layer].window,
          .causal = config_.layers[layer].causal,
          .gated = false};
}

void Dflash::record_draft() {
  LayerWalk walk(layers_, weights_, recorder_, a_);
  recorder_.embed(a_.hidden, target_.embedding);
  for (uint32_t i = 0; i < config_.n_layers(); ++i) {
    const std::string layer = concat("layers.", i, ".");
    walk.attention(layer, sight(i));
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

void Dflash::record_tap(uint32_t layer) {
  const auto tap = std::ranges::find(config_.taps, layer);
  if (tap == config_.taps.end()) return;
  Recorder recorder(target_.device, target_.program, target_.args, target_.pass,
                    target_.deterministic);
  LayerWalk walk(layers_, weights_, recorder, a_);
  const Activation taps = walk.for_readers(taps_, {walk.matrix("fc.weight", context_, taps_)});
  recorder.place_columns(taps, target_.activations.hidden,
                         static_cast<uint32_t>(tap - config_.taps.begin()) * config_.hidden);
}

void Dflash::record_context(Recorder& recorder) {
  LayerWalk walk(layers_, weights_, recorder, a_);
  const Matrix fc = walk.matrix("fc.weight", context_, taps_);
  recorder.linear(context_, walk.for_readers(taps_, {fc}), fc);
  // One norm serves the layers' projections: each of them may want its input otherwise.
  const auto projection = [&](uint32_t layer, const char* name, const Activation& out) {
    return walk.matrix(concat("layers.", layer, ".self_attn.", name, ".weight"), out, normed_);
  };
  const Activation normed =
      walk.norm(normed_, context_, "hidden_norm.weight",
                {projection(0, "k_proj", key_), projection(0, "v_proj", value_)});
  for (uint32_t i = 0; i < config_.n_layers(); ++i) {
    recorder.linear(key_, normed, projection(i, "k_proj", key_));
    recorder.linear(value_, normed, projection(i, "v_proj", value_));
    recorder.keys_and_values(
        {.key = key_,
         .value = value_,
         .k_norm =
             weights_.vector(concat("layers.", i, ".self_attn.k_norm.weight"), layers_.head_dim),
         .rope = rope_table_,
         .planes = planes_[i]},
        attention_args(layers_, sight(i)));
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
  return control_.bytes() + rope_.buffer().bytes() + scratch_.buffer().bytes();
}

}  // namespace mtlqwen
