// The command queue: what is committed, signalled, waited for and mapped happens on one thread, in order.
#pragma once
#include <Metal/Metal.hpp>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <variant>
#include <vector>

#include "hostmetal/commands.hpp"
#include "hostmetal/event.hpp"
#include "hostmetal/fork_safe.hpp"
#include "hostmetal/runner.hpp"
#include "hostmetal/sparse.hpp"

namespace mtlqwen::hostmetal {

using FeedbackHandlers = std::vector<MTL4::CommitFeedbackHandlerFunction>;

struct CommitItem {
  std::vector<std::unique_ptr<Recording>> recordings;
  ResidentIds resident;
  FeedbackHandlers handlers;
};

struct SignalItem {
  NS::SharedPtr<HostEvent> event;
  uint64_t value;
};

struct WaitItem {
  NS::SharedPtr<HostEvent> event;
  uint64_t value;
};

using QueueItem = std::variant<CommitItem, SignalItem, WaitItem, MappingUpdate>;

// Carries items out on a thread of its own. stop() ends it when all items are done; a wait for an event that nobody has
// signalled by then is given up.
class QueueWorker {
 public:
  void start(HostDevice& device);
  void stop();
  void push(QueueItem item);

 private:
  // Told to the handlers after the signal that follows the work, if one is queued, as on a GPU: who waits for the event
  // alone does not have the feedback yet.
  struct Feedback {
    FeedbackHandlers handlers;
    Failure failure;
    double start_s = 0.0;
    double end_s = 0.0;
  };

  void work();
  bool next(QueueItem& item);  // false: stopped
  void carry_out(CommitItem& item);
  void carry_out(SignalItem& item);
  void carry_out(WaitItem& item);
  void carry_out(MappingUpdate& item);
  void deliver();

  HostDevice* device_ = nullptr;  // held by the queue
  VisibleUpdates visible_;
  Failure mapping_failure_;  // of a mapping update, until a command buffer reports it
  std::vector<Feedback> feedback_;

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<QueueItem> items_;
  std::atomic<bool> stopping_{false};
  std::thread thread_;
};

class HostQueue final : public MTL4::CommandQueue {
 public:
  explicit HostQueue(HostDevice& device);
  ~HostQueue() override;

  void commit(const MTL4::CommandBuffer* const buffers[], uint64_t count,
              FeedbackHandlers handlers);
  void push(QueueItem item);
  void attach(const MTL::ResidencySet* set, bool add);

  [[nodiscard]] bool is_of_this_process() const { return device_->is_of_this_process(); }

 private:
  const NS::SharedPtr<HostDevice> device_;
  std::mutex sets_mutex_;
  std::vector<NS::SharedPtr<HostResidencySet>> sets_;
  ForkSafe<QueueWorker> worker_;
};

}  // namespace mtlqwen::hostmetal
