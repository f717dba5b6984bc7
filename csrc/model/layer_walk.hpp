// Walks decoder layers and records each launch: the target's, and those of drafters that are made of the same parts.
#pragma once
#include <cstdint>
#include <initializer_list>
#include <string>

#include "cache/kv_pool.hpp"
#include "model/config.hpp"
#include "model/device_weights.hpp"
#include "model/recorder.hpp"
#include "model/scratch.hpp"

namespace mtlqwen {

// (context, rotary_dim / 2) pairs of cos and sin: a rope table for one rotary_dim and theta.
[[nodiscard]] uint64_t rope_bytes(const ModelConfig& config, uint32_t context);
void fill_rope(float* table, const ModelConfig& config, uint32_t context);

// Deals the planes of keys and values to layers, in the order of the calls. A layer whose keys and
// values of one token fit a plane's token together takes one plane, else two.
class PlaneDealer {
 public:
  PlaneDealer(const KvPool& kv_pool, uint32_t first) : kv_pool_(kv_pool), next_(first) {}
  // kv_bytes: of one token's keys.
  [[nodiscard]] KvPlanes next(uint64_t kv_bytes);
  [[nodiscard]] static uint32_t n_planes(uint64_t kv_bytes, uint64_t token_bytes) {
    return 2 * kv_bytes <= token_bytes ? 1 : 2;
  }

 private:
  const KvPool& kv_pool_;
  uint32_t next_;
};

// Of one layer's keys, or values, of one token.
[[nodiscard]] constexpr uint64_t kv_bytes(const ModelConfig& config) {
  return uint64_t{config.n_kv_heads} * config.head_dim * sizeof(uint16_t);
}

// A bank holds the states of all GDN layers, then their convolution states; floats of one layer,
// and of a whole bank.
[[nodiscard]] uint64_t
gdn_state_floats(const ModelConfig& config);                        // (v_heads, head_dim, head_dim)
[[nodiscard]] uint64_t gdn_conv_floats(const ModelConfig& config);  // (3, channels)
[[nodiscard]] uint64_t gdn_bank_floats(const ModelConfig& config);

// One pass over activations `a`; hidden is what every part adds to. Names are the engine's, below
// the layer's prefix ("layers.3.").
class LayerWalk {
 public:
  // A target's tells which of its places spoil a row (NormArgs); a drafter's rows may be what they are.
  enum class Of : uint8_t { kTarget, kDrafter };
  LayerWalk(const ModelConfig& config, DeviceWeights& weights, Recorder& recorder,
            const Activations& activations, Of of = Of::kDrafter)
      : config_(config), weights_(weights), record_(recorder), a_(activations), of_(of) {}

  // What an attention layer looks like, but for the shapes of the config.
  struct AttentionLayer {
    Span rope;
    KvPlanes planes;
    uint32_t slot_tokens = 0;
    uint64_t token_bytes = 0;
    uint32_t first_key = 0;
    uint32_t window = 0;
    bool causal = true;
    bool gated = true;
  };
  void attention(const std::string& layer, const AttentionLayer& at);
  void mlp(const std::string& layer);

  // The states of a GDN layer, its place among them, and its tape (none: no bytes).
  struct GdnLayer {
    Span banks{};
    uint64_t bank_floats = 0;
    uint32_t index = 0;
    Span tape{};
    uint32_t chunk_rows = 0;
  };
  void gdn(const std::string& layer, const GdnLayer& at);

  // The normed activation of what the places so far gave, as the matrices that read it want it.
  Activation norm(const Activation& out, const Activation& in, const std::string& name,
                  std::initializer_list<Matrix> readers, Count count = Count::kRows);
  [[nodiscard]] Activation for_readers(Activation in, std::initializer_list<Matrix> readers) const;
  // Of the layer's shape: out.cols rows of in.cols.
  [[nodiscard]] Matrix matrix(const std::string& name, const Activation& out, const Activation& in);

 private:
  void add_to_residual(const Activation& in, const Matrix& weight);
  // Of what comes next.
  [[nodiscard]] uint32_t place() const { return of_ == Of::kTarget ? n_places_ : MTLQWEN_NO_INDEX; }

  const ModelConfig& config_;
  DeviceWeights& weights_;
  Recorder& record_;
  const Activations& a_;
  Of of_;
  uint32_t n_places_ = 0;  // whose result has been looked at
};

[[nodiscard]] GdnArgs gdn_args(const ModelConfig& config, const LayerWalk::GdnLayer& at);
[[nodiscard]] SampleScanArgs sample_args(const ModelConfig& config);
[[nodiscard]] AttentionArgs attention_args(const ModelConfig& config,
                                           const LayerWalk::AttentionLayer& at,
                                           uint32_t place = MTLQWEN_NO_INDEX);

}  // namespace mtlqwen
