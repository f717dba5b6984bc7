// The multi-token-prediction head of the model itself: one attention layer that reads the embedding of
// a token and the hidden state before it, and tells the token after. Chained for several proposals.
// Source: vLLM, qwen3_5_mtp.py.
#pragma once
#include <array>
#include <memory>
#include <vector>

#include "model/drafter.hpp"
#include "model/layer_walk.hpp"

namespace mtlqwen {

inline constexpr uint32_t kMtpSteps = 4;  // proposals at most

// The entry of its planes at index p is made of the pair (final-normed hidden state of p - 1, token
// p), so that nothing of a block depends on tokens behind it; index 0 has no pair and is never seen.
// The hidden state of a bank's last token is its seed, the last floats of the bank.
class Mtp : public Drafter {
 public:
  explicit Mtp(const DraftedTarget& target);

  void record_draft() override;
  void record_tap(Recorder&, uint32_t) override {}
  void record_context(Recorder& recorder) override;
  void pack(std::span<const PackedQuery> queries, StepShape& shape) override;
  [[nodiscard]] uint64_t arena_bytes() const override;

 private:
  [[nodiscard]] LayerWalk::AttentionLayer attention_layer() const;
  [[nodiscard]] SeedArgs seed_args() const;
  // hidden = the layer's input for the rows of the recorder's pass, from their tokens and `before`.
  void record_pair(Recorder& recorder, LayerWalk& walk, const Activation& before);
  void record_step(uint32_t step);

  const DraftedTarget target_;
  std::vector<std::unique_ptr<Control>> controls_;  // (kMtpSteps)
  std::vector<PassBuffers> passes_;  // (kMtpSteps): later steps read the ids of the step before
  Arena scratch_;
  KvPlanes planes_;
  Activation embedded_, normed_, shifted_;  // (kPassRows, hidden)
  Activation joined_;                       // (kPassRows, 2 hidden)
  Activation output_;  // (kPassRows, hidden): final-normed, of the target or of the step before
};

}  // namespace mtlqwen
