#include "model/mtp.hpp"

#include <algorithm>

namespace mtlqwen {

namespace {

static_assert(kMtpSteps + 1 <= kMaxPasses);

const std::string kLayer = "mtp.layers.0.";

uint64_t scratch_bytes(const DraftedTarget& target) {
  const uint32_t hidden = target.config.hidden;
  return 3 * pass_rows_bytes(hidden, false) + pass_rows_bytes(hidden, target.int16) +
         pass_rows_bytes(2 * hidden, target.int16);
}

}  // namespace

Mtp::Mtp(const DraftedTarget& target)
    : target_(target),
      scratch_(target.device, scratch_bytes(target), Storage::kPrivate, "draft scratch"),
      planes_(PlaneDealer(target.kv_pool, target.first_plane).next(kv_bytes(target.config))),
      embedded_(take_pass_rows(scratch_, target.config.hidden, false)),
      normed_(take_pass_rows(scratch_, target.config.hidden, false)),
      shifted_(take_pass_rows(scratch_, target.config.hidden, false)),
      joined_(take_pass_rows(scratch_, 2 * target.config.hidden, target.int16)),
      output_(take_pass_rows(scratch_, target.config.hidden, target.int16)) {
  for (uint32_t step = 0; step < kMtpSteps; ++step) {
    controls_.push_back(std::make_unique<Control>(
        target.device,
        PassLimits{.queries = target.slots, .rows = target.slots, .sampled_rows = target.slots},
        static_cast<uint8_t>(step + 1)));
    passes_.push_back(controls_.back()->buffers());
    if (step > 0) passes_[step].input_ids = passes_[step - 1].sampled;
  }
}

LayerWalk::AttentionLayer Mtp::attention_layer() const {
  return {.rope = target_.rope,
          .planes = planes_,
          .slot_tokens = target_.kv_pool.slot_tokens(),
          .token_bytes = target_.kv_pool.layout().token_bytes(),
          .first_key = 1};
}

SeedArgs Mtp::seed_args() const {
  return {.dim = target_.config.hidden,
          .reserved = 0,
          .bank_floats = target_.banks.bank_floats(),
          .seed_offset = gdn_bank_floats(target_.config)};
}

void Mtp::record_pair(Recorder& recorder, LayerWalk& walk, const Activation& before) {
  const Activation& hidden = target_.activations.hidden;
  const Matrix fc = walk.matrix("mtp.fc.weight", hidden, joined_);
  const Activation joined = walk.for_readers(joined_, {fc});
  recorder.embed(embedded_, target_.embedding);
  walk.norm(normed_, embedded_, "mtp.pre_fc_norm_embedding.weight", {});
  recorder.place_columns(joined, normed_, 0);
  walk.norm(normed_, before, "mtp.pre_fc_norm_hidden.weight", {});
  recorder.place_columns(joined, normed_, target_.config.hidden);
  recorder.linear(hidden, joined, fc);
}

void Mtp::record_draft() {
  for (uint32_t step = 0; step < kMtpSteps; ++step) record_step(step);
}

void Mtp::record_step(uint32_t step) {
  const Activations& a = target_.activations;
  Recorder recorder(target_.device, target_.program, target_.args, passes_[step],
                    target_.deterministic);
  LayerWalk walk(target_.config, target_.weights, recorder, a);
  if (step == 0) {
    recorder.shift_rows(shifted_, output_, target_.banks.span(), seed_args());
    record_pair(recorder, walk, shifted_);
  } else {
    record_pair(recorder, walk, output_);
  }
  walk.attention(kLayer, attention_layer());
  walk.mlp(kLayer);
  const Activation told = walk.norm(output_, a.hidden, "mtp.norm.weight", {target_.head});
  recorder.linear(a.logits, told, target_.head, false, Count::kLogitRows);
  recorder.sample(a.logits, a.candidates, sample_args(target_.config));
  recorder.scatter_ids(target_.pass.input_ids, passes_[step].sampled, passes_[step].places,
                       Count::kLogitRows);
}

void Mtp::record_context(Recorder& recorder) {
  const Activations& a = target_.activations;
  LayerWalk walk(target_.config, target_.weights, recorder, a);
  walk.norm(output_, a.hidden, "norm.weight", {});
  recorder.keep_seeds(target_.banks.span(), output_, seed_args());
  recorder.keep_taped_seeds(target_.banks.span(), output_, seed_args());
  recorder.shift_rows(shifted_, output_, target_.banks.span(), seed_args());
  record_pair(recorder, walk, shifted_);
  const Matrix key = walk.matrix(kLayer + "self_attn.k_proj.weight", a.key, a.normed);
  const Matrix value = walk.matrix(kLayer + "self_attn.v_proj.weight", a.value, a.normed);
  const Activation normed =
      walk.norm(a.normed, a.hidden, kLayer + "input_layernorm.weight", {key, value});
  recorder.linear(a.key, normed, key);
  recorder.linear(a.value, normed, value);
  recorder.keys_and_values({.key = a.key,
                            .value = a.value,
                            .k_norm = target_.weights.vector(kLayer + "self_attn.k_norm.weight",
                                                             target_.config.head_dim),
                            .rope = target_.rope,
                            .planes = planes_},
                           attention_args(target_.config, attention_layer()));
}

// The widest drafts first, so that each step's rows are the first of the step before.
void Mtp::pack(std::span<const PackedQuery> queries, StepShape& shape) {
  std::vector<const PackedQuery*> drafted;
  for (const PackedQuery& packed : queries) {
    if (packed.query.asks_drafter()) drafted.push_back(&packed);
  }
  std::ranges::stable_sort(drafted, std::ranges::greater{},
                           [](const PackedQuery* packed) { return packed->query.width; });
  for (uint32_t step = 0; step < kMtpSteps; ++step) {
    std::vector<PackedQuery> rows;
    for (const PackedQuery* packed : drafted) {
      const Query& query = packed->query;
      if (query.width <= step) break;
      rows.push_back({.query = {.sequence = query.sequence,
                                .slot = query.slot,
                                .first_row = static_cast<uint32_t>(rows.size()),
                                .count = 1,
                                .kv_valid = query.kv_valid + step,
                                .bank = query.bank},
                      .tokens = packed->tokens.last(1),
                      .sampling = target_.noise ? packed->sampling : Sampling{},
                      .n_proposed = 1,
                      .first_place = query.first_row + 1 + step});
    }
    shape[step + 1] = controls_[step]->pack(rows, target_.min_blocks_per_split, kPartialCapacity);
  }
}

uint64_t Mtp::arena_bytes() const {
  uint64_t bytes = scratch_.buffer().bytes();
  for (const auto& control : controls_) bytes += control->bytes();
  return bytes;
}

}  // namespace mtlqwen
