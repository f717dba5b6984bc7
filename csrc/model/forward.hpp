// The forward pass of the target model: embedding, layers, head, sampling.
#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "cache/gdn_banks.hpp"
#include "cache/kv_pool.hpp"
#include "gpu/commands.hpp"
#include "model/config.hpp"
#include "model/control.hpp"
#include "model/device_weights.hpp"
#include "model/program.hpp"
#include "model/scratch.hpp"

namespace mtlqwen {

// A bank holds the states of all GDN layers, then their convolution states; floats of one layer,
// and of a whole bank.
[[nodiscard]] uint64_t
gdn_state_floats(const ModelConfig& config);                        // (v_heads, head_dim, head_dim)
[[nodiscard]] uint64_t gdn_conv_floats(const ModelConfig& config);  // (3, channels)
[[nodiscard]] uint64_t gdn_bank_floats(const ModelConfig& config);

// Built once: walks the layers, resolves every weight, chooses and builds every pipeline, and keeps
// the launches. Reference of the arithmetic: the Qwen 3.5 model of transformers
// (modeling_qwen3_5.py).
class Forward {
 public:
  struct Parts {
    Device& device;
    const ModelConfig& config;
    DeviceWeights& weights;
    const KvPool& kv_pool;
    const GdnBanks& banks;
    uint32_t slots = 0;
    uint32_t context = 0;  // tokens; rows of the rope table
    // A row's bits depend on nothing but its own request: not on its company, nor on how its prompt is cut.
    bool deterministic = false;
  };
  explicit Forward(const Parts& parts);

  // Makes the copies, runs one pass behind them and returns the sampled id of each query that
  // emits, in order. Throws DeviceError, CapacityError, Aborted.
  std::span<const int32_t> run(std::span<const PackedQuery> queries,
                               std::span<const BlockCopy> copies);

  [[nodiscard]] std::span<const float>
  logits(uint32_t logit_row) const;  // (vocab) of the last pass
  [[nodiscard]] double gpu_seconds() const { return commands_.gpu_seconds(); }

  // Times the kernels of the passes to come; null: no more.
  void set_timer(std::shared_ptr<Timer> timer) { commands_.set_timer(std::move(timer)); }
  // When the last pass was encoded: from then on the device works.
  [[nodiscard]] Timer::Clock::time_point encoded() const { return encoded_; }
  // What the last pass did, where it was timed and succeeded.
  [[nodiscard]] std::vector<KernelGroup> kernels() const {
    return program_.groups(shape_, commands_.marks());
  }
  [[nodiscard]] uint64_t arena_bytes() const;
  [[nodiscard]] const Program& program() const { return program_; }

 private:
  void encode(std::span<const BlockCopy> copies);

  uint32_t vocab_;
  uint32_t min_blocks_per_split_;
  Control control_;
  Scratch scratch_;
  Arena args_;
  Arena rope_;
  Program program_;
  Commands commands_;
  StepShape shape_{};  // of the last pass
  Timer::Clock::time_point encoded_{};
};

}  // namespace mtlqwen
