// The software device.
#pragma once
#include <unistd.h>

#include <Metal/Metal.hpp>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>

#include "hostmetal/executor.hpp"
#include "hostmetal/hazards.hpp"
#include "hostmetal/memory.hpp"

namespace mtlqwen::hostmetal {

// Everything that was made by a device holds a reference to it.
class HostDevice final : public MTL::Device {
 public:
  explicit HostDevice(std::unique_ptr<Executor> executor, const HostChecks& the_checks = {});

  [[nodiscard]] Executor& executor() const { return *executor_; }
  [[nodiscard]] const volatile uint32_t* abort_flag() const {
    return reinterpret_cast<const volatile uint32_t*>(&abort);
  }
  // A forked child has the device, but none of its threads.
  [[nodiscard]] bool is_of_this_process() const { return process_ == getpid(); }

  const uint64_t max_buffer_bytes;
  const HostChecks checks;
  AddressTable addresses;
  std::atomic<uint32_t> abort{0};
  std::atomic<uint64_t> allocated_bytes{0};
  std::atomic<uint64_t> next_id{1};
  std::atomic<uint64_t> n_dispatches{0};  // counted where they are shuffled
  GroupSampler sampler;
  std::mutex mapping_mutex;          // of all sparse buffers' runs
  std::atomic<uint64_t> updates{0};  // mapping updates that have been carried out

 private:
  const std::unique_ptr<Executor> executor_;
  const pid_t process_;
};

// Null for null.
[[nodiscard]] inline HostDevice* host(MTL::Device* device) {
  return static_cast<HostDevice*>(device);
}

}  // namespace mtlqwen::hostmetal
