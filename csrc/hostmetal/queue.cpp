#include "hostmetal/queue.hpp"

#include <pthread.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/error.hpp"
#include "hostmetal/cpu.hpp"
#include "hostmetal/error.hpp"
#include "hostmetal/faults.hpp"

namespace mtlqwen::hostmetal {
namespace {

constexpr NS::UInteger kMaxSets = 32;                // residency sets of a queue, Metal's limit
constexpr uint64_t kWaitSliceMs = 20;                // between looks whether the queue is going
constexpr std::chrono::milliseconds kRest{10};       // without work, before pages are brought
constexpr uint64_t kBringBytes = uint64_t{1} << 20;  // at a time: a millisecond of one core

double now_s() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

class HostFeedback final : public MTL4::CommitFeedback {
 public:
  NS::SharedPtr<NS::Error> error;
  double start_s = 0.0;
  double end_s = 0.0;
};

void tell(const FeedbackHandlers& handlers, const Failure& failure, double start_s, double end_s) {
  const auto feedback = NS::TransferPtr(new HostFeedback);
  if (failure) feedback->error = NS::TransferPtr(make_error(failure));
  feedback->start_s = start_s;
  feedback->end_s = end_s;
  for (const auto& handler : handlers) handler(feedback.get());
}

}  // namespace

void QueueWorker::start(HostDevice& device) {
  device_ = &device;
  thread_ = std::thread([this] { work(); });
}

void QueueWorker::stop() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_one();
  thread_.join();
}

void QueueWorker::push(QueueItem item) {
  bool wakes = true;
  {
    const std::lock_guard lock(mutex_);
    items_.push_back(std::move(item));
    wakes = !is_waiter_near_;
  }
  if (wakes) changed_.notify_one();
}

// Checks may need a signal stack, which threads of others should not get from us.
void QueueWorker::expect_wait() {
  if (device_->checks.any()) return;
  const std::lock_guard lock(mutex_);
  is_waiter_near_ = true;
}

void QueueWorker::help(const HostEvent& event, uint64_t value, Clock::time_point limit) {
  if (process_ != getpid()) return;
  std::unique_lock lock(mutex_);
  is_waiter_near_ = false;
  if (!stopping_ && !device_->checks.any()) {
    const DenormalsFlushed flushed;
    while (!is_busy_ && !items_.empty() && !std::holds_alternative<WaitItem>(items_.front()) &&
           event.value() < value && Clock::now() < limit) {
      carry_out_next(lock, limit);
    }
    if (!is_busy_ && items_.empty()) deliver(lock);
  }
  const bool is_over = items_.empty() && (is_busy_ || feedback_.empty()) && !stopping_;
  if (!is_over) changed_.notify_one();
}

void QueueWorker::work() {
  pthread_setname_np(pthread_self(), "mtlqwen-queue");
  flush_denormals();
  std::unique_lock lock(mutex_);
  while (true) {
    const auto has_items = [this] { return !items_.empty() && (stopping_ || !is_waiter_near_); };
    while (is_busy_ || !(has_items() || !feedback_.empty() || stopping_)) rest(lock);
    if (has_items()) {
      carry_out_next(lock, Clock::time_point::max());
    } else if (!feedback_.empty()) {
      deliver(lock);
    } else {
      return;
    }
  }
}

// Until something may have changed. While nobody wants anything, heaps get their pages: when tiles are mapped, in front of a
// pass, somebody would wait for them.
void QueueWorker::rest(std::unique_lock<std::mutex>& lock) {
  if (fresh_.empty()) return changed_.wait(lock);
  const bool is_quiet = changed_.wait_for(lock, kRest) == std::cv_status::timeout;
  if (!is_quiet || is_busy_ || !items_.empty()) return;
  FreshHeap& heap = fresh_.front();
  lock.unlock();
  const bool are_missing = bring_pages(heap);
  lock.lock();
  if (!are_missing) fresh_.pop_front();
}

bool QueueWorker::bring_pages(FreshHeap& heap) const {
  const std::shared_ptr<Memory> memory = heap.memory.lock();
  if (!memory) return false;
  const uint64_t bytes = std::min(memory->bytes - heap.n_brought, kBringBytes);
  device_->executor().bring(memory->heap, heap.n_brought, bytes);
  heap.n_brought += bytes;
  return heap.n_brought < memory->bytes;
}

void QueueWorker::carry_out_next(std::unique_lock<std::mutex>& lock, Clock::time_point limit) {
  QueueItem item = std::move(items_.front());
  items_.pop_front();
  is_busy_ = true;
  lock.unlock();
  NS::AutoreleasePool* pool = NS::AutoreleasePool::alloc()->init();
  if (!std::holds_alternative<SignalItem>(item)) deliver();
  const bool is_done = std::visit([this, limit](auto& one) { return carry_out(one, limit); }, item);
  if (is_done) item = QueueItem();  // objects that it held last go without the lock
  pool->release();
  lock.lock();
  is_busy_ = false;
  if (!is_done) items_.push_front(std::move(item));
}

void QueueWorker::deliver(std::unique_lock<std::mutex>& lock) {
  if (feedback_.empty()) return;
  is_busy_ = true;
  lock.unlock();
  deliver();
  lock.lock();
  is_busy_ = false;
}

bool QueueWorker::carry_out(std::unique_ptr<CommitItem>& commit, Clock::time_point limit) {
  CommitItem& item = *commit;
  Feedback& feedback = item.feedback;
  if (feedback.start_s == 0.0) {
    feedback.failure = std::exchange(mapping_failure_, {});
    feedback.start_s = now_s();
    if (!feedback.failure && should_fail(Fault::kCommit)) {
      feedback.failure = refused("[hostmetal] command queue: this commit was made to fail");
    }
  }
  for (; item.next < item.recordings.size(); ++item.next) {
    const Recording& recording = *item.recordings[item.next];
    if (!feedback.failure) {
      if (!item.runner) {
        item.runner =
            std::make_unique<CommandRunner>(*device_, recording, item.resident, visible_, works_);
      }
      if (!item.runner->run(limit)) return false;
      feedback.failure = item.runner->take_failure();
      item.runner.reset();
    }
    if (recording.allocator) --recording.allocator->in_flight;
  }
  feedback.end_s = now_s();
  if (!feedback.handlers.empty()) feedback_.push_back(std::move(feedback));
  return true;
}

bool QueueWorker::carry_out(SignalItem& item, Clock::time_point /*limit*/) {
  item.event->signal(item.value);
  return true;
}

bool QueueWorker::carry_out(WaitItem& item, Clock::time_point /*limit*/) {
  while (!item.event->wait(item.value, kWaitSliceMs) && !stopping_) {}
  return true;
}

bool QueueWorker::carry_out(MappingUpdate& item, Clock::time_point /*limit*/) {
  Failure failure = apply_mappings(*device_, item);
  if (failure && !mapping_failure_) mapping_failure_ = std::move(failure);
  if (item.heap && item.heap->is_fresh.exchange(false)) {
    const std::lock_guard lock(mutex_);
    fresh_.push_back({.memory = item.heap});
    changed_.notify_one();  // a waiter may be at it, and the thread asleep
  }
  return true;
}

void QueueWorker::deliver() {
  for (const Feedback& one : feedback_) {
    NS::AutoreleasePool* pool = NS::AutoreleasePool::alloc()->init();
    tell(one.handlers, one.failure, one.start_s, one.end_s);
    pool->release();
  }
  feedback_.clear();
}

HostQueue::HostQueue(HostDevice& device) : device_(NS::RetainPtr(&device)) {
  worker_->start(device);
}

HostQueue::~HostQueue() {
  if (is_of_this_process()) worker_->stop();
}

void HostQueue::commit(const MTL4::CommandBuffer* const buffers[], uint64_t count,
                       FeedbackHandlers handlers) {
  auto item = std::make_unique<CommitItem>();
  item->feedback.handlers = std::move(handlers);
  {
    const std::lock_guard lock(sets_mutex_);
    for (const auto& set : sets_) item->resident.add(*set.get());
  }
  for (uint64_t i = 0; i < count; ++i) {
    std::unique_ptr<Recording> recording = buffers[i] ? host(buffers[i])->take() : nullptr;
    if (!recording) {
      recording = std::make_unique<Recording>();
      recording->refuse("[hostmetal] command buffer: committed without commands, or twice");
    }
    for (const auto& set : recording->residency_sets) item->resident.add(*set.get());
    if (recording->allocator) ++recording->allocator->in_flight;
    item->recordings.push_back(std::move(recording));
  }
  push(std::move(item));
}

// In a forked child there is no thread to carry anything out: work fails at once, and events are signalled so that nobody
// waits for ever.
void HostQueue::push(QueueItem item) {
  if (is_of_this_process()) return worker_->push(std::move(item));
  if (const auto* signal = std::get_if<SignalItem>(&item)) signal->event->signal(signal->value);
  const auto* commit = std::get_if<std::unique_ptr<CommitItem>>(&item);
  if (!commit) return;
  const Failure failure{
      .code = MTL4::CommandQueueErrorNotPermitted,
      .text = "[hostmetal] command queue: this process was forked after its device was made; make "
              "an engine in the process that uses it"};
  const double now = now_s();
  tell((*commit)->feedback.handlers, failure, now, now);
}

void HostQueue::signal(HostEvent* event, uint64_t value) {
  event->expect_signal_of(worker_.weak());
  push(SignalItem{.event = NS::RetainPtr(event), .value = value});
}

void HostQueue::expect_wait() {
  if (is_of_this_process()) worker_->expect_wait();
}

void HostQueue::attach(const MTL::ResidencySet* set, bool add) {
  if (!set) return;
  HostResidencySet* member = host(const_cast<MTL::ResidencySet*>(set));
  const std::lock_guard lock(sets_mutex_);
  const auto found = std::find_if(sets_.begin(), sets_.end(),
                                  [&](const auto& other) { return other.get() == member; });
  if (add && found == sets_.end() && sets_.size() < kMaxSets) {
    sets_.push_back(NS::RetainPtr(member));
  } else if (!add && found != sets_.end()) {
    sets_.erase(found);
  }
}

struct CommitOptionsReader {
  static const FeedbackHandlers& handlers(const MTL4::CommitOptions& options) {
    return options.handlers_;
  }
};

}  // namespace mtlqwen::hostmetal

namespace MTL {

MTL4::CommandQueue* Device::newMTL4CommandQueue() {
  using namespace mtlqwen::hostmetal;
  return this ? new HostQueue(*host(this)) : nullptr;
}

}  // namespace MTL

namespace MTL4 {

using namespace mtlqwen::hostmetal;

void CommandQueue::addResidencySet(const MTL::ResidencySet* residencySet) {
  if (this) host(this)->attach(residencySet, true);
}

void CommandQueue::removeResidencySet(const MTL::ResidencySet* residencySet) {
  if (this) host(this)->attach(residencySet, false);
}

void CommandQueue::commit(const CommandBuffer* const commandBuffers[], NS::UInteger count) {
  commit(commandBuffers, count, nullptr);
}

void CommandQueue::commit(const CommandBuffer* const commandBuffers[], NS::UInteger count,
                          const CommitOptions* options) {
  if (!this) return;
  host(this)->commit(commandBuffers, count,
                     options ? CommitOptionsReader::handlers(*options) : FeedbackHandlers());
}

void CommandQueue::signalEvent(const MTL::Event* event, uint64_t value) {
  if (!this || !event) return;
  host(this)->signal(host(event), value);
}

void CommandQueue::wait(const MTL::Event* event, uint64_t value) {
  if (!this || !event) return;
  host(this)->push(WaitItem{.event = NS::RetainPtr(host(event)), .value = value});
}

void CommandQueue::updateBufferMappings(const MTL::Buffer* buffer, const MTL::Heap* heap,
                                        const UpdateSparseBufferMappingOperation* operations,
                                        NS::UInteger count) {
  if (!this || count == 0) return;
  host(this)->push(MappingUpdate{.buffer = MemoryOf::get(buffer),
                                 .heap = MemoryOf::get(heap),
                                 .operations = {operations, operations + count}});
}

CommitOptions* CommitOptions::alloc() { return new CommitOptions; }
CommitOptions* CommitOptions::init() { return this; }

void CommitOptions::addFeedbackHandler(const CommitFeedbackHandlerFunction& function) {
  if (this && function) handlers_.push_back(function);
}

NS::Error* CommitFeedback::error() const {
  return this ? static_cast<const HostFeedback*>(this)->error.get() : nullptr;
}

CFTimeInterval CommitFeedback::GPUStartTime() const {
  return this ? static_cast<const HostFeedback*>(this)->start_s : 0.0;
}

CFTimeInterval CommitFeedback::GPUEndTime() const {
  return this ? static_cast<const HostFeedback*>(this)->end_s : 0.0;
}

}  // namespace MTL4
