// What an engine is asked to be.
#pragma once
#include <cstdint>
#include <optional>
#include <string>

#include "base/types.hpp"

namespace mtlqwen {

struct EngineOptions {
  std::string model;     // a .gguf file, or a directory with config.json and safetensors
  std::string kernels;   // the kernel library
  uint32_t context = 0;  // tokens of one sequence; 0: what the model allows
  uint32_t slots = 8;    // 1 .. kMaxSlots
  std::optional<uint64_t>
      memory_budget{};          // bytes the engine may own; none: what the device recommends
  uint32_t block_tokens = 128;  // token positions of one block: 64, 128 or 256
  uint32_t checkpoint_interval =
      512;  // every so many tokens a sequence leaves a checkpoint; 0: not
  // Bytes that checkpoints may hold; 0: none are kept; none: a quarter of what weights and arenas
  // leave of the budget.
  std::optional<uint64_t> cache_memory{};
  std::string cache_dir{};                 // of checkpoints that outlive the engine; empty: none do
  uint64_t cache_dir_bytes = 10ULL << 30;  // that they may take there
  // Of the rows of a pass, what prefilling sequences may take together while others decode, 0 to 1:
  // 1 brings first tokens soonest, less keeps the gaps between tokens short.
  float prefill_share = 1.0F;
  // Threads that run kernels on a CPU, 1 to max_threads(); 0: one for each core that the process may use.
  uint32_t threads = 0;
  bool prefetch_weights = true;  // read the files ahead of the passes that need them
  bool lock_weights = false;     // keep them in memory
  // Who proposes tokens; none: the best of what is there, and n-grams before it.
  std::optional<DrafterKind> spec = DrafterKind::kNone;
  std::string drafter{};  // the DFlash model, a file or directory as `model`; empty: there is none
  // Proposals are drawn by the noise that the request's tokens are drawn by; else they are the likeliest.
  bool draft_noise = false;
  // GDN states that one sequence's pass may keep to return to from a rejected proposal, in bytes; where they do not fit, and
  // with 0, the accepted rows are replayed.
  uint64_t candidate_bytes = 0;
  bool deterministic = false;  // a sequence's bits depend on nothing but its own request
};

}  // namespace mtlqwen
