// Command buffers, allocators and argument tables.
#include "hostmetal/commands.hpp"

#include <utility>

#include "base/error.hpp"
#include "hostmetal/error.hpp"

namespace mtlqwen::hostmetal {

void HostArgumentTable::bind(uint64_t address, uint64_t index) {
  if (index < n_bindings_) {
    addresses[index] = address;
  } else if (problem.empty()) {
    problem = concat("the argument table has no binding ", index, " (it was made with ",
                     n_bindings_, ")");
  }
}

std::vector<Command> AllocatorState::take() {
  const std::lock_guard lock(mutex_);
  return std::exchange(spare_, {});
}

void AllocatorState::give_back(std::vector<Command> commands) {
  commands.clear();
  const std::lock_guard lock(mutex_);
  if (commands.capacity() > spare_.capacity()) spare_.swap(commands);
}

Recording::~Recording() {
  if (allocator) allocator->give_back(std::move(commands));
}

void HostCommandBuffer::begin(const MTL4::CommandAllocator* allocator) {
  const bool is_open = recording_ && !has_ended_;
  recording_ = std::make_unique<Recording>();
  has_ended_ = false;
  device_->executor().expect_turn();
  if (is_open) recording_->refuse("[hostmetal] command buffer: begun twice without an end");
  if (!allocator) {
    return recording_->refuse("[hostmetal] command buffer: begun without an allocator");
  }
  recording_->allocator = static_cast<const HostCommandAllocator*>(allocator)->state;
  recording_->commands = recording_->allocator->take();
  if (recording_->allocator->was_reset_early.exchange(false)) {
    recording_->refuse("[hostmetal] command allocator: reset while its commands were running");
  }
}

void HostCommandBuffer::end() {
  if (recording_ && has_encoder) {
    recording_->refuse("[hostmetal] command buffer: ended while its encoder is open");
  }
  has_encoder = false;
  has_ended_ = true;
}

MTL4::ComputeCommandEncoder* HostCommandBuffer::new_encoder() {
  if (!recording_ || has_ended_) return nullptr;
  if (has_encoder) recording_->refuse("[hostmetal] command buffer: two encoders at once");
  has_encoder = true;
  return (new HostEncoder(*this, recording_->commands.size()))->autorelease();
}

std::unique_ptr<Recording> HostCommandBuffer::take() {
  if (recording_ && !has_ended_) {
    recording_->refuse("[hostmetal] command buffer: committed before endCommandBuffer");
  }
  return std::move(recording_);
}

}  // namespace mtlqwen::hostmetal

namespace MTL {

using namespace mtlqwen::hostmetal;

MTL4::CommandAllocator* Device::newCommandAllocator() {
  return this ? new HostCommandAllocator : nullptr;
}

MTL4::CommandBuffer* Device::newCommandBuffer() {
  return this ? new HostCommandBuffer(*host(this)) : nullptr;
}

MTL4::ArgumentTable* Device::newArgumentTable(const MTL4::ArgumentTableDescriptor* descriptor,
                                              NS::Error** error) {
  if (!this) return nullptr;
  const NS::UInteger n_bindings = descriptor->maxBufferBindCount();
  if (n_bindings <= MSL_MAX_BUFFERS) return new HostArgumentTable(n_bindings);
  report(error, kQueueDomain, MTL4::CommandQueueErrorInternal,
         mtlqwen::concat("[hostmetal] argument table: too many bindings (got ", n_bindings,
                         ", want at most ", MSL_MAX_BUFFERS, ")"));
  return nullptr;
}

}  // namespace MTL

namespace MTL4 {

using namespace mtlqwen::hostmetal;

void CommandAllocator::reset() {
  if (!this) return;
  AllocatorState& state = *static_cast<HostCommandAllocator*>(this)->state;
  if (state.in_flight.load() != 0) state.was_reset_early = true;
}

void ArgumentTable::setAddress(MTL::GPUAddress gpuAddress, NS::UInteger bindingIndex) {
  if (this) static_cast<HostArgumentTable*>(this)->bind(gpuAddress, bindingIndex);
}

void CommandBuffer::beginCommandBuffer(const CommandAllocator* allocator) {
  if (this) host(this)->begin(allocator);
}

void CommandBuffer::endCommandBuffer() {
  if (this) host(this)->end();
}

ComputeCommandEncoder* CommandBuffer::computeCommandEncoder() {
  return this ? host(this)->new_encoder() : nullptr;
}

void CommandBuffer::useResidencySet(const MTL::ResidencySet* residencySet) {
  Recording* recording = this ? host(this)->recording() : nullptr;
  if (!recording || !residencySet) return;
  recording->residency_sets.push_back(
      NS::RetainPtr(host(const_cast<MTL::ResidencySet*>(residencySet))));
}

}  // namespace MTL4
