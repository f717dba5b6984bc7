// Recording of commands: allocator, command buffer, compute encoder, argument table.
#pragma once
#include "MTL4Counters.hpp"
#include "MTLLibrary.hpp"
#include "MTLResource.hpp"
#include "MTLTypes.hpp"

namespace MTL4 {

class CommandBuffer;
class ComputeCommandEncoder;

// Holds the commands of the command buffers begun with it. reset() only after their work is done.
class CommandAllocator : public NS::Referencing<CommandAllocator> {
 public:
  void reset();

 protected:
  CommandAllocator() = default;
};

class ArgumentTableDescriptor : public NS::Copying<ArgumentTableDescriptor> {
 public:
  static ArgumentTableDescriptor* alloc();
  ArgumentTableDescriptor* init();

  [[nodiscard]] NS::UInteger maxBufferBindCount() const;
  void setMaxBufferBindCount(NS::UInteger maxBufferBindCount);  // at most 31

 private:
  ArgumentTableDescriptor() = default;
  NS::UInteger max_buffers_ = 0;
};

// The addresses that kernels get. A dispatch takes a snapshot: the table may change right behind it.
class ArgumentTable : public NS::Referencing<ArgumentTable> {
 public:
  void setAddress(MTL::GPUAddress gpuAddress, NS::UInteger bindingIndex);

 protected:
  ArgumentTable() = default;
};

class CommandBuffer : public NS::Referencing<CommandBuffer> {
 public:
  void beginCommandBuffer(const MTL4::CommandAllocator* allocator);
  void endCommandBuffer();
  ComputeCommandEncoder* computeCommandEncoder();  // autoreleased
  void useResidencySet(const MTL::ResidencySet* residencySet);

 protected:
  CommandBuffer() = default;
};

class CommandEncoder : public NS::Referencing<CommandEncoder> {
 public:
  // Commands of the encoder are unordered but for these barriers.
  void barrierAfterEncoderStages(MTL::Stages afterEncoderStages, MTL::Stages beforeEncoderStages,
                                 MTL4::VisibilityOptions visibilityOptions);
  void barrierAfterQueueStages(MTL::Stages afterQueueStages, MTL::Stages beforeStages,
                               MTL4::VisibilityOptions visibilityOptions);
  void endEncoding();

 protected:
  CommandEncoder() = default;
};

class ComputeCommandEncoder : public NS::Referencing<ComputeCommandEncoder, CommandEncoder> {
 public:
  void setArgumentTable(const MTL4::ArgumentTable* argumentTable);
  void setComputePipelineState(const MTL::ComputePipelineState* state);
  void setThreadgroupMemoryLength(NS::UInteger length, NS::UInteger index);
  void dispatchThreadgroups(MTL::Size threadgroupsPerGrid, MTL::Size threadsPerThreadgroup);
  // Copies and fills are of StageBlit.
  void copyFromBuffer(const MTL::Buffer* sourceBuffer, NS::UInteger sourceOffset,
                      const MTL::Buffer* destinationBuffer, NS::UInteger destinationOffset,
                      NS::UInteger size);
  void fillBuffer(const MTL::Buffer* buffer, NS::Range range, uint8_t value);
  // The time at which all commands before it are done.
  void writeTimestamp(MTL4::TimestampGranularity granularity, const MTL4::CounterHeap* counterHeap,
                      NS::UInteger index);

 protected:
  ComputeCommandEncoder() = default;
};

}  // namespace MTL4
