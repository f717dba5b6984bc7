// What proposes tokens on the device, as launches around those of the target.
#pragma once
#include <cstdint>
#include <span>

#include "cache/gdn_banks.hpp"
#include "cache/kv_pool.hpp"
#include "model/config.hpp"
#include "model/control.hpp"
#include "model/device_weights.hpp"
#include "model/lazy_context.hpp"
#include "model/program.hpp"
#include "model/recorder.hpp"
#include "model/scratch.hpp"
#include "model/tensor.hpp"

namespace mtlqwen {

// What a drafter reads of the target. All of it outlives the drafter.
struct DraftedTarget {
  Device& device;
  Program& program;
  Arena& args;
  const PassBuffers& pass;
  const ModelConfig& config;
  DeviceWeights& weights;
  const KvPool& kv_pool;
  const GdnBanks& banks;
  const Activations& activations;
  Matrix embedding;
  Matrix head;
  Span rope;
  uint32_t slots = 0;
  uint32_t context = 0;
  uint32_t first_plane = 0;  // of keys and values that the drafter has for itself
  uint32_t min_blocks_per_split = 1;
  bool deterministic = false;
  bool int16 = false;  // linears may want int16 rows
  // Proposals are drawn by the request's own noise, as the target draws; else they are the likeliest.
  bool noise = false;
};

// Its launches are recorded once, in this order: the draft before the target's embedding, behind a
// context that is lazy; a tap behind each of its layers; the context that is not lazy behind its last
// launch, both as launches of the target's pass. What it keeps of a sequence stands in the sequence's
// bundles and bank, so that whoever takes over those can be drafted for.
class Drafter {
 public:
  virtual ~Drafter() = default;
  virtual void record_draft() = 0;
  virtual void record_tap(Recorder& recorder, uint32_t layer) = 0;
  virtual void record_context(Recorder&) {}
  // Where rows wait whose context is not computed; null: none ever does.
  [[nodiscard]] virtual LazyContext* lazy_context() { return nullptr; }
  // The drafter's passes, for those queries that ask for a draft.
  virtual void pack(std::span<const PackedQuery> queries, StepShape& shape) = 0;
  [[nodiscard]] virtual uint64_t arena_bytes() const = 0;
};

}  // namespace mtlqwen
