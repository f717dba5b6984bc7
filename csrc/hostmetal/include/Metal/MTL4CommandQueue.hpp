// The queue, and what it tells about work that it finished.
#pragma once
#include <functional>
#include <vector>

#include "MTLEvent.hpp"
#include "MTLResource.hpp"
#include "MTLTypes.hpp"

using CFTimeInterval = double;  // seconds

namespace mtlqwen::hostmetal {
struct CommitOptionsReader;
}

namespace MTL4 {

class CommandBuffer;

class CommitFeedback : public NS::Referencing<CommitFeedback> {
 public:
  [[nodiscard]] NS::Error* error() const;  // null where the work succeeded
  [[nodiscard]] CFTimeInterval GPUStartTime() const;
  [[nodiscard]] CFTimeInterval GPUEndTime() const;

 protected:
  CommitFeedback() = default;
};

using CommitFeedbackHandlerFunction = std::function<void(MTL4::CommitFeedback*)>;

class CommitOptions : public NS::Referencing<CommitOptions> {
 public:
  static CommitOptions* alloc();
  CommitOptions* init();

  // Called once for each commit with these options, on a thread of the queue. It may run after events that are signalled
  // behind the commit: wait for both.
  void addFeedbackHandler(const MTL4::CommitFeedbackHandlerFunction& function);

 private:
  friend struct mtlqwen::hostmetal::CommitOptionsReader;
  CommitOptions() = default;
  std::vector<CommitFeedbackHandlerFunction> handlers_;
};

// Runs what is committed in order. Mappings are work of StageResourceState: dispatches see them only behind a
// barrierAfterQueueStages in their encoder. The queue owns no reference to buffers and heaps; they must live until the
// work is done.
class CommandQueue : public NS::Referencing<CommandQueue> {
 public:
  void addResidencySet(const MTL::ResidencySet* residencySet);
  void removeResidencySet(const MTL::ResidencySet* residencySet);
  void commit(const MTL4::CommandBuffer* const commandBuffers[], NS::UInteger count);
  void commit(const MTL4::CommandBuffer* const commandBuffers[], NS::UInteger count,
              const MTL4::CommitOptions* options);
  void signalEvent(const MTL::Event* event, uint64_t value);
  void wait(const MTL::Event* event, uint64_t value);
  // `heap` may be null where all operations unmap. A refused operation fails the next command buffer.
  void updateBufferMappings(const MTL::Buffer* buffer, const MTL::Heap* heap,
                            const MTL4::UpdateSparseBufferMappingOperation* operations,
                            NS::UInteger count);

 protected:
  CommandQueue() = default;
};

}  // namespace MTL4
