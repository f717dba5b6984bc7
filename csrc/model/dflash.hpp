// The DFlash drafter: one pass over a block [anchor, mask, mask, ...] proposes all of its tokens at
// once. Its context are keys and values made of the target's hidden states.
// Source: arXiv 2602.06036 and the `dflash` package, whose model the tensors are named after.
#pragma once
#include <memory>
#include <vector>

#include "model/dflash_config.hpp"
#include "model/drafter.hpp"
#include "model/layer_walk.hpp"

namespace mtlqwen {

// A context position's keys and values stand at its index in the drafter's planes; a block writes its
// own behind them, where the pass of the target puts true ones later.
class Dflash : public Drafter {
 public:
  Dflash(const DraftedTarget& target, const DflashConfig& config, DeviceWeights& weights);

  void record_draft() override;
  void record_tap(Recorder& recorder, uint32_t layer) override;
  [[nodiscard]] LazyContext* lazy_context() override { return &lazy_; }
  void pack(std::span<const PackedQuery> queries, StepShape& shape) override;
  [[nodiscard]] uint64_t arena_bytes() const override;

  // Planes of keys and values with tokens of `token_bytes`.
  [[nodiscard]] static uint32_t n_planes(const DflashConfig& config, uint64_t token_bytes);
  // The shapes of its layers.
  [[nodiscard]] static ModelConfig layers_of(const DflashConfig& config);

 private:
  [[nodiscard]] LayerWalk::AttentionLayer attention_layer(uint32_t layer) const;
  [[nodiscard]] LazyContext::Rows lazy_rows() const;
  void record_lazy_context();

  const DraftedTarget target_;
  const DflashConfig& config_;
  ModelConfig layers_;
  DeviceWeights& weights_;
  Control control_;
  Arena rope_;
  Arena scratch_;
  Span rope_table_;
  std::vector<KvPlanes> planes_;  // (layers)
  Matrix fc_;                     // (hidden, taps * hidden)
  Activations a_;                 // of the block
  Activation taps_, input_;  // (kPassRows, taps * hidden): of the target's pass, of the context's
  Activation context_, normed_;            // (kPassRows, hidden)
  std::vector<Activation> keys_, values_;  // (layers), each (kPassRows, kv_heads * head_dim)
  Recorder recorder_;                      // of the block
  LazyContext lazy_;
  Recorder context_recorder_;
  std::vector<int32_t> ids_;  // of all blocks
};

}  // namespace mtlqwen
