// Everything that an engine loads: device, weights, memory and the recorded forward pass, in the
// order of their lives.
#pragma once
#include <cstdint>
#include <functional>
#include <string>

#include "cache/gdn_banks.hpp"
#include "cache/kv_pool.hpp"
#include "gpu/device.hpp"
#include "model/device_weights.hpp"
#include "model/forward.hpp"
#include "model/weights.hpp"

namespace mtlqwen {

// Members are destroyed in reverse: what wraps memory goes before the memory.
class Runtime {
 public:
  // context 0: the model's own limit. `stage` is told what is about to be loaded.
  Runtime(const std::string& model, const std::string& kernels, uint32_t context, uint32_t slots,
          const std::function<void(const char* stage)>& stage);

  const Weights weights;
  const uint32_t context;
  Device device;
  DeviceWeights device_weights;
  KvPool kv_pool;
  GdnBanks banks;
  Forward forward;
};

}  // namespace mtlqwen
