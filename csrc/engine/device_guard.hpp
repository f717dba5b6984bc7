// Who may give the device work: a step, or somebody who reads and writes checkpoints.
#pragma once
#include <mutex>

#include "engine/engine.hpp"
#include "engine/runtime.hpp"

namespace mtlqwen {

// Holds the device of an open engine, with no request to abort left over. Throws what
// require_open_locked() throws.
class Engine::DeviceGuard {
 public:
  explicit DeviceGuard(Engine& engine) : device_(engine.device_mutex_, std::defer_lock) {
    engine.require_outside_step();
    device_.lock();
    const std::lock_guard lock(engine.mutex_);
    engine.require_open_locked();
    engine.runtime_->device.clear_abort();
  }

 private:
  std::unique_lock<std::mutex> device_;
};

}  // namespace mtlqwen
