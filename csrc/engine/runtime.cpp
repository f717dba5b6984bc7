#include "engine/runtime.hpp"

#include <algorithm>
#include <span>
#include <utility>
#include <vector>

#include "base/error.hpp"

namespace mtlqwen {

namespace {

uint32_t choose_context(const ModelConfig& config, uint32_t wanted) {
  if (wanted > config.max_context) {
    throw CapacityError(concat("[engine] context: longer than the model allows (got ", wanted,
                               " tokens, want at most ", config.max_context,
                               "); pass a smaller context"));
  }
  return wanted == 0 ? config.max_context : wanted;
}

Weights open_weights(const EngineOptions& options) {
  Weights weights(options.model);
  for (uint32_t i = 0; options.lock_weights && i < weights.n_files(); ++i) weights.file(i).lock();
  return weights;
}

// What to read ahead: of locked files, nothing is left.
std::vector<std::span<uint8_t>> pages_to_read(const Weights& weights,
                                              const EngineOptions& options) {
  std::vector<std::span<uint8_t>> ranges;
  if (!options.prefetch_weights || options.lock_weights) return ranges;
  for (uint32_t i = 0; i < weights.n_files(); ++i) {
    ranges.emplace_back(weights.file(i).pages(), weights.file(i).page_bytes());
  }
  return ranges;
}

// Announces a stage on the way into a member's initialiser.
template <class T>
T&& announced(const std::function<void(const char*)>& stage, const char* name, T&& value) {
  stage(name);
  return std::forward<T>(value);
}

}  // namespace

Runtime::Runtime(const EngineOptions& options, const std::function<void(const char* stage)>& stage)
    : weights(open_weights(announced(stage, "weights", options))),
      prefetcher(pages_to_read(weights, options)),
      context(choose_context(weights.config(), options.context)),
      device(announced(stage, "device", options.kernels)), device_weights(device, weights),
      kv_pool(device, {.n_planes = 2 * weights.config().n_layers(LayerKind::kAttention),
                       .token_bytes = uint64_t{weights.config().n_kv_heads} *
                                      weights.config().head_dim * sizeof(uint16_t),
                       .slots = options.slots,
                       .context = context}),
      banks(device, options.slots, gdn_bank_floats(weights.config())),
      forward({.device = device,
               .config = announced(stage, "kernels", weights.config()),
               .weights = device_weights,
               .kv_pool = kv_pool,
               .banks = banks,
               .slots = options.slots,
               .context = context,
               .deterministic = options.deterministic}),
      budget_bytes(options.memory_budget.value_or(device.recommended_bytes())) {
  if (options.threads != 0) device.set_threads(options.threads);
  divide_budget(options);
}

// What weights, arenas and the banks of all slots leave of the budget is for keys and values.
void Runtime::divide_budget(const EngineOptions& options) {
  const uint64_t fixed = device.allocated_bytes() + banks.max_bytes();
  const uint64_t bundle = kv_pool.layout().bundle_bytes();
  const uint64_t whole_context = kv_pool.layout().slot_blocks() * bundle;
  const uint64_t least = fixed + (options.context == 0 ? bundle : whole_context);
  if (budget_bytes < least) {
    throw CapacityError(concat("[engine] memory_budget: too small for the model and ",
                               options.context == 0 ? kBlockTokens : context,
                               " tokens of context (got ", budget_bytes, " bytes, want at least ",
                               least, "); raise it, or lower slots or context"));
  }
  kv_pool.set_limit(budget_bytes - fixed);
  if (kv_pool.layout().n_planes() == 0) return;
  context = static_cast<uint32_t>(
      std::min<uint64_t>(context, uint64_t{kv_pool.max_bundles()} * kBlockTokens));
}

}  // namespace mtlqwen
