// One command buffer: dispatches, barriers, copies, then one commit and one wait.
#pragma once
#include <Metal/Metal.hpp>
#include <cstdint>
#include <span>
#include <string>

#include "gpu/device.hpp"

namespace mtlqwen {

struct Grid {
  uint32_t groups[3] = {1, 1, 1};  // threadgroups
  uint32_t threads = 32;           // of one threadgroup
  uint32_t threadgroup_bytes = 0;  // [[threadgroup(0)]], multiple of 16
};

// Reusable: begin() .. commit_and_wait(), over and over. Within one round dispatches are unordered unless a barrier stands
// between them; mappings queued on the Device before begin() are visible to all of them. One thread at a time.
class Commands {
 public:
  explicit Commands(Device& device);
  ~Commands();
  Commands(const Commands&) = delete;
  Commands& operator=(const Commands&) = delete;

  void begin();
  // buffers[i] is the GPU address bound to [[buffer(i)]].
  void dispatch(const Pipeline& pipeline, std::span<const uint64_t> buffers, const Grid& grid);
  void copy(const Buffer& from, uint64_t from_offset, const Buffer& to, uint64_t to_offset, uint64_t bytes);
  void barrier();  // what follows sees all that was dispatched or copied before
  // Returns when the GPU is done. Throws DeviceError with the device's words; Aborted after Device::request_abort().
  void commit_and_wait();
  [[nodiscard]] double gpu_seconds() const { return gpu_seconds_; }  // of the last round

 private:
  Device& device_;
  NS::SharedPtr<MTL4::CommandAllocator> allocator_;
  NS::SharedPtr<MTL4::CommandBuffer> commands_;
  NS::SharedPtr<MTL4::ArgumentTable> arguments_;
  NS::SharedPtr<MTL4::ComputeCommandEncoder> encoder_;
  NS::SharedPtr<MTL::SharedEvent> done_;
  uint64_t round_ = 0;
  double gpu_seconds_ = 0.0;
};

}  // namespace mtlqwen
