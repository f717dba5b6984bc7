// The activations of one pass: one arena, laid out once, reused by every layer and every pass.
#pragma once
#include <cstdint>

#include "base/types.hpp"
#include "model/arena.hpp"
#include "model/config.hpp"
#include "model/tensor.hpp"

namespace mtlqwen {

// (row, split) pairs whose attention partials fit the scratch; at least kPassRows.
inline constexpr uint32_t kPartialCapacity = 1024;

// Row counts are ScratchShape's, but for the last group (one row for each sampled row).
// Those that linears read have room for int16 rows where they are wanted.
struct Activations {
  Activation hidden;  // the residual stream
  Activation normed;
  // gated attention
  Activation
      query_gate;  // (rows, heads, 2, head_dim): query | gate; without gates (rows, heads, head_dim)
  Activation key, value;  // (rows, kv_heads, head_dim)
  Activation query;       // (rows, heads, head_dim) normed, roped, scaled
  Span partial;           // (kPartialCapacity, heads, head_dim)
  Span stats;             // (kPartialCapacity, heads, 2)
  Activation attended;    // (rows, heads * head_dim), gated
  // Gated DeltaNet
  Activation qkv;        // (rows, channels) before the convolution
  Activation z;          // (rows, v_heads * head_dim)
  Activation a, b;       // (rows, v_heads)
  Activation convolved;  // (rows, channels)
  Activation gates;      // (rows, v_heads, 2): decay, beta
  Activation delta_out;  // (rows, v_heads * head_dim)
  Activation delta_gated;
  // MLP
  Activation gate, up, gated;  // (rows, intermediate)
  // sampling
  Activation last_hidden, last_normed;
  Activation logits;  // (sampled_rows, vocab)
  Span candidates;    // (sampled_rows, chunks) Candidate
};

struct ScratchShape {
  uint32_t rows = kPassRows;
  uint32_t sampled_rows = 0;
  bool int16 = false;  // room for int16 rows
  bool gated = true;   // attention has gates
};

inline constexpr uint32_t kSampleChunk = 4096;  // ids that one threadgroup of sample_scan looks at
[[nodiscard]] uint32_t sample_chunks(uint32_t vocab);

// What a drafter's layers of this shape need, without logits and candidates, in one arena.
[[nodiscard]] uint64_t layer_scratch_bytes(const ModelConfig& config, const ScratchShape& shape);
[[nodiscard]] Activations take_layer_scratch(Arena& arena, const ModelConfig& config,
                                             const ScratchShape& shape);

// Rows that a drafter makes of the target's, in one arena: their bytes, and the next of them.
[[nodiscard]] uint64_t pass_rows_bytes(uint32_t cols, bool int16);
[[nodiscard]] Activation take_pass_rows(Arena& arena, uint32_t cols, bool int16);

// Of the target, with logits that the CPU can read.
class Scratch {
 public:
  Scratch(Device& device, const ModelConfig& config, const ScratchShape& shape);
  [[nodiscard]] const Activations& operator*() const { return activations_; }
  [[nodiscard]] const float* logits(uint32_t row) const;  // (vocab) of the last pass
  [[nodiscard]] uint64_t bytes() const { return pass_.buffer().bytes() + logits_.buffer().bytes(); }

 private:
  Arena pass_;
  Arena logits_;
  Activations activations_;
};

}  // namespace mtlqwen
