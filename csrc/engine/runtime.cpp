#include "engine/runtime.hpp"

#include <limits>
#include <utility>

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

// Announces a stage on the way into a member's initialiser.
template <class T>
T&& announced(const std::function<void(const char*)>& stage, const char* name, T&& value) {
  stage(name);
  return std::forward<T>(value);
}

}  // namespace

Runtime::Runtime(const std::string& model, const std::string& kernels, uint32_t context_wanted,
                 uint32_t slots, const std::function<void(const char* stage)>& stage)
    : weights(announced(stage, "weights", model)),
      context(choose_context(weights.config(), context_wanted)),
      device(announced(stage, "device", kernels)), device_weights(device, weights),
      kv_pool(device,
              {.n_planes = 2 * weights.config().n_layers(LayerKind::kAttention),
               .token_bytes = uint64_t{weights.config().n_kv_heads} * weights.config().head_dim *
                              sizeof(uint16_t),
               .slots = slots,
               .context = context},
              std::numeric_limits<uint64_t>::max()),
      banks(device, slots, gdn_bank_floats(weights.config())),
      forward({.device = device,
               .config = announced(stage, "kernels", weights.config()),
               .weights = device_weights,
               .kv_pool = kv_pool,
               .banks = banks,
               .slots = slots,
               .context = context}) {}

}  // namespace mtlqwen
