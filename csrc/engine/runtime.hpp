// Everything that an engine loads: device, weights, memory and the recorded forward pass, in the order of their lives.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "cache/bundle_pool.hpp"
#include "cache/gdn_banks.hpp"
#include "cache/kv_pool.hpp"
#include "cache/prefix_cache.hpp"
#include "engine/draft_policy.hpp"
#include "engine/options.hpp"
#include "engine/transfer.hpp"
#include "gpu/device.hpp"
#include "io/prefetcher.hpp"
#include "model/device_weights.hpp"
#include "model/dflash_weights.hpp"
#include "model/forward.hpp"
#include "model/weights.hpp"

namespace mtlqwen {

// Members are destroyed in reverse: what wraps memory goes before the memory.
class Runtime {
 public:
  // `stage` is told what is about to be loaded.
  Runtime(const EngineOptions& options, const std::function<void(const char* stage)>& stage);

  const Weights weights;
  const DrafterKind drafter_kind;
  const std::optional<DflashWeights> dflash;  // for kDflash
  const Prefetcher prefetcher;
  uint32_t context;  // tokens that one sequence can hold
  Device device;
  DeviceWeights device_weights;
  std::optional<DeviceWeights> dflash_weights;
  uint64_t budget_bytes;
  BundlePool pool;
  KvPool kv_pool;
  GdnBanks banks;
  Forward forward;
  PrefixCache cache;

  // For files; made by open_files().
  std::optional<StateOrigin> origin;
  std::unique_ptr<Transfer> transfer;
  void open_files();

  [[nodiscard]] bool drafts() const { return drafter_kind != DrafterKind::kNone; }
  [[nodiscard]] uint32_t most_width() const;  // proposals of one draft
  [[nodiscard]] std::vector<DraftOption> draft_options() const;

 private:
  [[nodiscard]] uint64_t cache_bytes(const EngineOptions& options) const;
  void divide_budget(const EngineOptions& options);

  bool deterministic_;
  bool looks_back_;  // n-grams may stand in for the drafter
};

}  // namespace mtlqwen
