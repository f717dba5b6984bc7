// Recorded commands, and the objects that record them.
#pragma once
#include <Metal/Metal.hpp>
#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <variant>
#include <vector>

#include "hostmetal/counters.hpp"
#include "hostmetal/device.hpp"
#include "hostmetal/library.hpp"
#include "hostmetal/residency.hpp"

namespace mtlqwen::hostmetal {

using Addresses = std::array<uint64_t, MSL_MAX_BUFFERS>;
using ThreadgroupBytes = std::array<uint32_t, MSL_MAX_THREADGROUP_SLOTS>;

struct DispatchCommand {
  DispatchCommand() {}  // leaves the arrays as they are: a pass has hundreds of these

  NS::SharedPtr<HostPipeline> pipeline;
  Addresses addresses;  // a snapshot of what the kernel uses of the argument table
  std::array<uint32_t, 3> groups;
  std::array<uint32_t, 3> threads;
  ThreadgroupBytes threadgroup_bytes;
};

struct CopyCommand {
  std::shared_ptr<Memory> source;
  uint64_t source_offset;
  std::shared_ptr<Memory> destination;
  uint64_t destination_offset;
  uint64_t bytes;
};

struct FillCommand {
  std::shared_ptr<Memory> destination;
  uint64_t offset;
  uint64_t bytes;
  uint8_t value;
};

struct BarrierCommand {
  MTL::Stages after;
  MTL::Stages before;
  MTL4::VisibilityOptions visibility;
  bool of_queue;             // else of the encoder
  size_t encoder_start = 0;  // commands of the recording that earlier encoders made
};

struct TimestampCommand {
  NS::SharedPtr<HostCounterHeap> heap;
  uint64_t index;
};

using Command =
    std::variant<DispatchCommand, CopyCommand, FillCommand, BarrierCommand, TimestampCommand>;

// Shared by an allocator and the recordings that it holds.
class AllocatorState {
 public:
  // Memory for commands, from one recording to the next.
  [[nodiscard]] std::vector<Command> take();
  void give_back(std::vector<Command> commands);

  std::atomic<uint32_t> in_flight{0};
  std::atomic<bool> was_reset_early{false};

 private:
  std::mutex mutex_;
  std::vector<Command> spare_;  // empty
};

// What stands between begin and end of a command buffer; the queue takes it at commit.
struct Recording {
  Recording() = default;
  ~Recording();
  Recording(const Recording&) = delete;
  Recording& operator=(const Recording&) = delete;

  std::vector<Command> commands;
  std::vector<NS::SharedPtr<HostResidencySet>> residency_sets;
  std::shared_ptr<AllocatorState> allocator;
  std::string problem;  // the first misuse: the command buffer fails with it instead of running

  void refuse(const std::string& text) {
    if (problem.empty()) problem = text;
  }
};

class HostCommandAllocator final : public MTL4::CommandAllocator {
 public:
  const std::shared_ptr<AllocatorState> state = std::make_shared<AllocatorState>();
};

class HostArgumentTable final : public MTL4::ArgumentTable {
 public:
  explicit HostArgumentTable(uint64_t n_bindings) : n_bindings_(n_bindings) {}
  void bind(uint64_t address, uint64_t index);

  Addresses addresses{};
  std::string problem;  // a binding that the table does not have

 private:
  const uint64_t n_bindings_;
};

// One thread at a time.
class HostCommandBuffer final : public MTL4::CommandBuffer {
 public:
  explicit HostCommandBuffer(HostDevice& device) : device_(NS::RetainPtr(&device)) {}
  void begin(const MTL4::CommandAllocator* allocator);
  void end();
  MTL4::ComputeCommandEncoder* new_encoder();
  [[nodiscard]] std::unique_ptr<Recording> take();  // at commit; null where there is nothing

  // Null where commands come too early or too late; they are then dropped, as Metal's checks would stop the program.
  [[nodiscard]] Recording* recording() const { return recording_.get(); }
  bool has_encoder = false;

 private:
  const NS::SharedPtr<HostDevice> device_;
  std::unique_ptr<Recording> recording_;
  bool has_ended_ = false;
};

class HostEncoder final : public MTL4::ComputeCommandEncoder {
 public:
  HostEncoder(HostCommandBuffer& commands, size_t first_command)
      : commands_(NS::RetainPtr(&commands)), first_command_(first_command) {}

  void dispatch(const MTL::Size& groups, const MTL::Size& threads);
  void copy(CopyCommand command);
  void fill(FillCommand command);
  void barrier(BarrierCommand command);
  void timestamp(TimestampCommand command);
  void end();

  NS::SharedPtr<HostPipeline> pipeline;
  NS::SharedPtr<HostArgumentTable> arguments;
  ThreadgroupBytes threadgroup_bytes{};

  void refuse(const std::string& text);

 private:
  Recording* open_recording();
  [[nodiscard]] std::string check_dispatch(const MTL::Size& groups, const MTL::Size& threads) const;
  [[nodiscard]] std::string check_arguments() const;

  const NS::SharedPtr<HostCommandBuffer> commands_;
  const size_t first_command_;
  bool is_open_ = true;
};

[[nodiscard]] inline HostCommandBuffer* host(const MTL4::CommandBuffer* commands) {
  return static_cast<HostCommandBuffer*>(const_cast<MTL4::CommandBuffer*>(commands));
}

}  // namespace mtlqwen::hostmetal
