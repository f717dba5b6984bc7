#include "model/forward.hpp"

#include <string>

#include "base/error.hpp"
#include "model/dflash.hpp"
#include "model/gdn_table.hpp"
#include "model/layer_walk.hpp"
#include "model/logit_edits.hpp"
#include "model/mtp.hpp"
#include "model/tape.hpp"

namespace mtlqwen {

namespace {

constexpr uint32_t kLaunchesPerLayer = 20;

// Of one size for every pass that can come, or as fine as the pass allows.
uint32_t min_blocks_per_split(const Forward::Parts& parts) {
  if (!parts.deterministic) return 1;
  return blocks_per_split(kPassRows, parts.context, 1, kPartialCapacity);
}

uint32_t sampled_rows(const Forward::Parts& parts) {
  return parts.drafts() ? kSampledRows : parts.slots + kToldRows;
}

// Launches of the drafter's layers count, too: those of a chain of one layer once a step.
uint64_t args_bytes(const Forward::Parts& parts) {
  const size_t drafted = parts.dflash == nullptr ? kMtpSteps + 1 : parts.dflash->layers.size();
  return (parts.config.layers.size() + 2 * drafted + 2) * kLaunchesPerLayer * Arena::kAlignment;
}

uint64_t tape_bytes(const Forward::Parts& parts) {
  return parts.drafts() ? tape_floats(parts.config, kSampledRows) * sizeof(float) : 0;
}

uint32_t target_planes(const ModelConfig& config, const KvPool& kv_pool) {
  return config.n_layers(LayerKind::kAttention) *
         PlaneDealer::n_planes(kv_bytes(config), kv_pool.layout().token_bytes());
}

}  // namespace

// Walks the layers from embedding to sampled id and records each launch, with those of the drafter around them.
void Forward::record(const Parts& parts, Span rope) {
  const ModelConfig& config = parts.config;
  const Activations& a = *scratch_;
  Recorder recorder(parts.device, program_, args_, control_.buffers(), parts.deterministic);
  LayerWalk walk(config, parts.weights, recorder, a, LayerWalk::Of::kTarget);
  const Matrix embedding = parts.weights.matrix("embed_tokens.weight", config.vocab, config.hidden);
  const Matrix head =
      config.tied ? embedding : parts.weights.matrix("lm_head.weight", config.vocab, config.hidden);
  PlaneDealer planes(parts.kv_pool, 0);
  drafter_ = make_drafter(parts, rope, embedding, head);
  if (drafter_) drafter_->record_draft();
  target_ = program_.n_launches();
  recorder.embed(a.hidden, embedding);
  uint32_t n_gdn = 0;
  for (uint32_t i = 0; i < config.layers.size(); ++i) {
    const std::string layer = concat("layers.", i, ".");
    if (config.layers[i] == LayerKind::kAttention) {
      walk.attention(layer, {.rope = rope,
                             .planes = planes.next(kv_bytes(config)),
                             .slot_tokens = parts.kv_pool.slot_tokens(),
                             .token_bytes = parts.kv_pool.layout().token_bytes()});
    } else {
      walk.gdn(layer,
               {.banks = parts.banks.span(),
                .bank_floats = parts.banks.bank_floats(),
                .index = n_gdn,
                .tape = tape_of(config, n_gdn),
                .chunk_rows = gdn_chunk_rows(parts.device.is_software(), parts.deterministic)});
      ++n_gdn;
    }
    walk.mlp(layer);
    if (drafter_) drafter_->record_tap(recorder, i);
  }
  // Only the rows that are sampled go through the head.
  recorder.gather_last_rows(a.last_hidden, a.hidden);
  const Activation normed =
      walk.norm(a.last_normed, a.last_hidden, "norm.weight", {head}, Count::kLogitRows);
  recorder.linear(a.logits, normed, head, false, Count::kLogitRows);
  choice_ = program_.n_launches();
  const SampleScanArgs scan = sample_args(config);
  recorder.edit_logits(a.logits, edits_.spans(), scan);
  recorder.filter(a.logits, scan);
  recorder.sample(a.logits, a.candidates, scan);
  recorder.restore_logits(a.logits, edits_.spans(), scan);
  recorder.logprobs(a.logits, scan);
  if (parts.drafts()) record_rollback(parts, recorder);
  if (drafter_) drafter_->record_context(recorder);
}

Span Forward::tape_of(const ModelConfig& config, uint32_t layer) const {
  if (!tape_) return {};
  const uint64_t bytes = tape_layer_floats(config, kSampledRows) * sizeof(float);
  return tape_span_.part(layer * bytes, bytes);
}

// What a draft leaves behind: how much of it holds, and the states after that.
void Forward::record_rollback(const Parts& parts, Recorder& recorder) {
  recorder.verify();
  if (!tape_) return;
  const ModelConfig& config = parts.config;
  recorder.gdn_replay(parts.banks.span(), tape_span_,
                      {.layer = gdn_args(config, {.bank_floats = parts.banks.bank_floats()}),
                       .state_stride = gdn_state_floats(config),
                       .conv_stride = gdn_conv_floats(config),
                       .tape_stride = tape_layer_floats(config, kSampledRows),
                       .n_layers = config.n_layers(LayerKind::kGdn),
                       .reserved = 0});
}

std::unique_ptr<Drafter> Forward::make_drafter(const Parts& parts, Span rope,
                                               const Matrix& embedding, const Matrix& head) {
  const DraftedTarget target{.device = parts.device,
                             .program = program_,
                             .args = args_,
                             .pass = control_.buffers(),
                             .config = parts.config,
                             .weights = parts.weights,
                             .kv_pool = parts.kv_pool,
                             .banks = parts.banks,
                             .activations = *scratch_,
                             .embedding = embedding,
                             .head = head,
                             .rope = rope,
                             .slots = parts.slots,
                             .context = parts.context,
                             .first_plane = target_planes(parts.config, parts.kv_pool),
                             .min_blocks_per_split = min_blocks_per_split_,
                             .deterministic = parts.deterministic,
                             .int16 = parts.device.prefers_int16(),
                             .noise = parts.draft_noise};
  switch (parts.drafter) {
  case DrafterKind::kDflash:
    return std::make_unique<Dflash>(target, *parts.dflash, *parts.dflash_weights);
  case DrafterKind::kMtp:
    return std::make_unique<Mtp>(target);
  default:
    return nullptr;
  }
}

Forward::Forward(const Parts& parts)
    : vocab_(parts.config.vocab), logit_rows_(sampled_rows(parts)),
      min_blocks_per_split_(min_blocks_per_split(parts)),
      control_(parts.device, {.queries = parts.slots,
                              .sampled_rows = sampled_rows(parts),
                              .stops = parts.drafts() ? parts.slots * (kMostStops + 1) : 0,
                              .mask_words = mask_words(parts.config.n_valid_tokens)}),
      edits_(parts.device, sampled_rows(parts)),
      scratch_(parts.device, parts.config,
               {.sampled_rows = sampled_rows(parts), .int16 = parts.device.prefers_int16()}),
      args_(parts.device, args_bytes(parts), Storage::kShared, "kernel args"),
      rope_(parts.device, rope_bytes(parts.config, parts.context), Storage::kShared, "rope table"),
      commands_(parts.device), settling_(parts.device) {
  if (tape_bytes(parts) > 0) {
    tape_.emplace(parts.device, tape_bytes(parts), Storage::kPrivate, "tape");
    tape_span_ = tape_->take(tape_bytes(parts));
  }
  const Span rope = rope_.take(rope_bytes(parts.config, parts.context));
  fill_rope(static_cast<float*>(rope_.at(rope)), parts.config, parts.context);
  record(parts, rope);
}

PassResult Forward::run(std::span<const PackedQuery> queries, std::span<const BlockCopy> copies,
                        const FillMasks& fill) {
  if (lazy()) make_ready(queries);
  shape_ = {};
  shape_[0] = control_.pack(queries, min_blocks_per_split_, kPartialCapacity);
  shape_[0].n_edits = edits_.pack(queries, program_);
  if (drafter_) drafter_->pack(queries, shape_);
  if (lazy()) {
    lazy()->pack(drafting_, shape_);
    lazy()->store().take(shape_[0].rows);
  }
  rounds_.clear();
  pass_seconds_ = 0.0;
  std::vector<std::exception_ptr> mask_errors;
  if (control_.masks_held()) {
    mask_errors = run_held(queries, copies, fill);
  } else {
    encode_round({}, copies);
    if (lazy()) lazy()->encode_taps(commands_);
    encoded_ = Timer::Clock::now();
    finish_round();
  }
  if (lazy()) lazy()->done();
  return {.sampled = control_.sampled_ids(),
          .accepted = control_.accepted(),
          .input_ids = control_.input_ids(),
          .spoilt = control_.spoilt(),
          .spoilt_logits = control_.spoilt_logits(),
          .logprobs = control_.logprobs(),
          .mask_errors = std::move(mask_errors)};
}

void Forward::encode(std::span<const BlockCopy> copies) {
  for (const BlockCopy& copy : copies) {
    commands_.copy(*copy.buffer, copy.from, *copy.buffer, copy.to, copy.bytes);
  }
  const bool has_input = lazy() && lazy()->encode_input(commands_);
  if (has_input || !copies.empty()) commands_.barrier();
}

std::span<const float> Forward::logits(uint32_t logit_row) const {
  return {scratch_.logits(logit_row), vocab_};
}

uint64_t Forward::arena_bytes() const {
  return control_.bytes() + edits_.bytes() + scratch_.bytes() + args_.buffer().bytes() +
         rope_.buffer().bytes() + tape_span_.bytes + (drafter_ ? drafter_->arena_bytes() : 0);
}

}  // namespace mtlqwen
