// The command queue: what is committed, signalled, waited for and mapped happens one by one, in order.
#pragma once
#include <unistd.h>

#include <Metal/Metal.hpp>
#include <atomic>
#include <chrono>
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

// What the handlers of a commit are told.
struct Feedback {
  FeedbackHandlers handlers;
  Failure failure;
  double start_s = 0.0;
  double end_s = 0.0;
};

struct CommitItem {
  std::vector<std::unique_ptr<Recording>> recordings;
  ResidentIds resident;
  Feedback feedback;
  size_t next = 0;                        // the recording at hand
  std::unique_ptr<CommandRunner> runner;  // of it, once it runs
};

struct SignalItem {
  NS::SharedPtr<HostEvent> event;
  uint64_t value;
};

struct WaitItem {
  NS::SharedPtr<HostEvent> event;
  uint64_t value;
};

// A heap that was mapped from: more of it will be.
struct FreshHeap {
  std::weak_ptr<Memory> memory;
  uint64_t n_brought = 0;  // bytes, from the first on, that have their pages
};

using QueueItem = std::variant<std::unique_ptr<CommitItem>, SignalItem, WaitItem, MappingUpdate>;

// Carries items out, one at a time and in order, on a thread of its own, or on one that waits for an event that they are to
// signal. stop() ends it when all items are done; a wait for an event that nobody has signalled by then is given up.
class QueueWorker {
 public:
  using Clock = std::chrono::steady_clock;

  void start(HostDevice& device);
  void stop();
  void push(QueueItem item);
  // Who pushes will wait for what it pushes: the thread may sleep on until then.
  void expect_wait();
  // Carries items out until the event has the value, `limit` is over or the items are: nobody has to wake another thread and
  // sleep for work that is already here. The rest is the thread's.
  void help(const HostEvent& event, uint64_t value, Clock::time_point limit);

 private:
  void work();
  void rest(std::unique_lock<std::mutex>& lock);
  [[nodiscard]] bool bring_pages(FreshHeap& heap) const;  // some; false: it has all
  // Both release the lock in between, with is_busy_ set.
  void carry_out_next(std::unique_lock<std::mutex>& lock, Clock::time_point limit);
  void deliver(std::unique_lock<std::mutex>& lock);
  // False: not done by the limit.
  bool carry_out(std::unique_ptr<CommitItem>& item, Clock::time_point limit);
  bool carry_out(SignalItem& item, Clock::time_point limit);
  bool carry_out(WaitItem& item, Clock::time_point limit);
  bool carry_out(MappingUpdate& item, Clock::time_point limit);
  void deliver();

  HostDevice* device_ = nullptr;  // held by the queue
  // Used by whoever set is_busy_.
  VisibleUpdates visible_;
  Failure mapping_failure_;  // of a mapping update, until a command buffer reports it
  // Told to the handlers after the signal that follows the work, if one is queued, as on a GPU: who waits for the event alone
  // does not have the feedback yet.
  std::vector<Feedback> feedback_;
  std::vector<Work> works_;

  std::mutex mutex_;
  std::condition_variable changed_;  // the thread's
  std::deque<QueueItem> items_;
  bool is_busy_ = false;         // somebody carries an item out, or tells handlers
  bool is_waiter_near_ = false;  // since expect_wait()
  std::deque<FreshHeap> fresh_;  // taken off by the thread alone
  std::atomic<bool> stopping_{false};
  const pid_t process_ = getpid();
  std::thread thread_;
};

class HostQueue final : public MTL4::CommandQueue {
 public:
  explicit HostQueue(HostDevice& device);
  ~HostQueue() override;

  void commit(const MTL4::CommandBuffer* const buffers[], uint64_t count,
              FeedbackHandlers handlers);
  void push(QueueItem item);
  void signal(HostEvent* event, uint64_t value);
  void expect_wait();
  void attach(const MTL::ResidencySet* set, bool add);

  [[nodiscard]] bool is_of_this_process() const { return device_->is_of_this_process(); }

 private:
  const NS::SharedPtr<HostDevice> device_;
  std::mutex sets_mutex_;
  std::vector<NS::SharedPtr<HostResidencySet>> sets_;
  ForkSafe<QueueWorker> worker_;
};

[[nodiscard]] inline HostQueue* host(MTL4::CommandQueue* queue) {
  return static_cast<HostQueue*>(queue);
}

}  // namespace mtlqwen::hostmetal
