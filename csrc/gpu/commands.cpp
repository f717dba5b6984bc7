#include "gpu/commands.hpp"

#include <array>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <string>
#include <utility>

#include "base/error.hpp"
#include "gpu/foundation.hpp"
#include "gpu/platform.hpp"

namespace mtlqwen {
namespace {

using Clock = std::chrono::steady_clock;

constexpr NS::UInteger kMaxBindings = 31;  // of a Metal 4 argument table
constexpr uint64_t kSliceMs = 100;         // between looks at the feedback while waiting
constexpr double kFeedbackLimitS = 10.0;   // a finished round's feedback comes at once
constexpr double kStopLimitS = 10.0;       // for a stopped device to answer
constexpr MTL::Stages kWork = MTL::StageDispatch | MTL::StageBlit;

template <class T>
NS::SharedPtr<T> require(T* object, const char* what) {
  if (object == nullptr) {
    throw DeviceError(concat("[gpu] ", what, ": the device refused one; free memory and retry"));
  }
  return NS::TransferPtr(object);
}

}  // namespace

// What the device says of one round. Written by the device's own thread.
struct Commands::Feedback {
  std::mutex mutex;
  std::condition_variable arrived;
  uint64_t round = 0;  // that the rest belongs to
  bool failed = false;
  bool aborted = false;
  bool out_of_memory = false;
  std::string error;
  double gpu_seconds = 0.0;

  void store(uint64_t of_round, MTL4::CommitFeedback* feedback) {
    const AutoreleaseScope scope;
    const NS::Error* reason = feedback->error();
    const std::lock_guard lock(mutex);
    round = of_round;
    failed = reason != nullptr;
    aborted = failed && is_abort_error(reason);
    out_of_memory = failed && reason->code() == MTL4::CommandQueueErrorOutOfMemory;
    error = failed ? to_text(reason) : std::string();
    gpu_seconds = feedback->GPUEndTime() - feedback->GPUStartTime();
    arrived.notify_all();
  }

  [[nodiscard]] bool has_failed(uint64_t of_round) {
    const std::lock_guard lock(mutex);
    return round == of_round && failed;
  }
};

Commands::Commands(Device& device, double round_limit_s)
    : device_(device), round_limit_s_(round_limit_s), feedback_(std::make_shared<Feedback>()) {
  const AutoreleaseScope scope;
  MTL::Device* metal = device.device_.get();
  allocator_ = require(metal->newCommandAllocator(), "command allocator");
  commands_ = require(metal->newCommandBuffer(), "command buffer");
  done_ = require(metal->newSharedEvent(), "shared event");
  const auto descriptor = NS::TransferPtr(MTL4::ArgumentTableDescriptor::alloc()->init());
  descriptor->setMaxBufferBindCount(kMaxBindings);
  NS::Error* error = nullptr;
  arguments_ = require(metal->newArgumentTable(descriptor.get(), &error), "argument table");
}

Commands::~Commands() {
  const AutoreleaseScope scope;
  abandon();
  if (!device_.lost()) return;
  allocator_.detach();
  commands_.detach();
  arguments_.detach();
}

void Commands::begin() {
  const AutoreleaseScope scope;
  if (device_.lost()) {
    throw DeviceError(
        "[gpu] device: lost, it stopped answering in an earlier pass; open a new engine");
  }
  abandon();
  if (timer_) timer_->begin();
  allocator_->reset();
  commands_->beginCommandBuffer(allocator_.get());
  encoder_ = NS::RetainPtr(commands_->computeCommandEncoder());
  if (!encoder_) {
    commands_->endCommandBuffer();
    throw DeviceError("[gpu] compute encoder: the device refused one; free memory and retry");
  }
  encoder_->setArgumentTable(arguments_.get());
  pipeline_ = nullptr;
  threadgroup_bytes_ = 0;
  mapping_updates_ = device_.mapping_updates_;
  if (mapping_updates_ != mapping_updates_seen_) {
    encoder_->barrierAfterQueueStages(MTL::StageResourceState, kWork,
                                      MTL4::VisibilityOptionDevice |
                                          MTL4::VisibilityOptionResourceAlias);
  }
}

void Commands::dispatch(const Pipeline& pipeline, std::span<const uint64_t> buffers,
                        const Grid& grid) {
  if (grid.threads > pipeline.max_threads || buffers.size() > kMaxBindings) {
    throw DeviceError(concat("[gpu] kernel ", pipeline.name, ": launch too large (got ",
                             grid.threads, " threads and ", buffers.size(),
                             " buffers, want at most ", pipeline.max_threads, " and ", kMaxBindings,
                             "); report this"));
  }
  for (NS::UInteger i = 0; i < buffers.size(); ++i) arguments_->setAddress(buffers[i], i);
  if (pipeline.state.get() != pipeline_) {
    pipeline_ = pipeline.state.get();
    encoder_->setComputePipelineState(pipeline_);
  }
  if (grid.threadgroup_bytes != threadgroup_bytes_) {
    threadgroup_bytes_ = grid.threadgroup_bytes;
    encoder_->setThreadgroupMemoryLength(threadgroup_bytes_, 0);
  }
  encoder_->dispatchThreadgroups(MTL::Size(grid.groups[0], grid.groups[1], grid.groups[2]),
                                 MTL::Size(grid.threads, 1, 1));
}

void Commands::copy(const Buffer& from, uint64_t from_offset, const Buffer& to, uint64_t to_offset,
                    uint64_t bytes) {
  const AutoreleaseScope scope;
  encoder_->copyFromBuffer(from.get(), from_offset, to.get(), to_offset, bytes);
}

void Commands::barrier() {
  encoder_->barrierAfterEncoderStages(kWork, kWork, MTL4::VisibilityOptionDevice);
}

void Commands::wait() {
  const AutoreleaseScope scope;
  wait_for_feedback();
  const std::lock_guard lock(feedback_->mutex);
  if (feedback_->aborted)
    throw Aborted(concat("[gpu] pass: stopped on request (", feedback_->error, ")"));
  if (feedback_->out_of_memory) {
    throw CapacityError(
        concat("[gpu] pass: out of memory (", feedback_->error, "); nothing was committed"));
  }
  if (feedback_->failed) {
    throw DeviceError(
        concat("[gpu] pass: the device failed (", feedback_->error, "); nothing was committed"));
  }
  gpu_seconds_ = feedback_->gpu_seconds;
  if (timer_) timer_->finished();
  mapping_updates_seen_ = mapping_updates_;
}

// Ends an open round without running it.
void Commands::abandon() noexcept {
  if (!encoder_) return;
  encoder_->endEncoding();
  encoder_.reset();
  commands_->endCommandBuffer();
}

void Commands::commit() {
  const AutoreleaseScope scope;
  abandon();
  device_.commit_residency();
  if (timer_) timer_->committed();
  ++round_;
  const MTL4::CommitFeedbackHandlerFunction handler =
      [feedback = feedback_, round = round_](MTL4::CommitFeedback* reply) {
        feedback->store(round, reply);
      };
  const auto options = NS::TransferPtr(MTL4::CommitOptions::alloc()->init());
  options->addFeedbackHandler(handler);
  const std::array<const MTL4::CommandBuffer*, 1> buffers{commands_.get()};
  expect_wait(device_.queue_.get());
  device_.queue_->commit(buffers.data(), buffers.size(), options.get());
  device_.queue_->signalEvent(done_.get(), round_);
}

void Commands::wait_for_feedback() {
  if (!wait_until(round_limit_s_)) give_up();
  std::unique_lock lock(feedback_->mutex);
  const bool told =
      feedback_->arrived.wait_for(lock, std::chrono::duration<double>(kFeedbackLimitS),
                                  [&] { return feedback_->round == round_; });
  if (told) return;
  device_.lost_ = true;
  throw DeviceError(
      "[gpu] pass: done, but the device did not say how it went; it is lost, open a new engine");
}

// False after limit_s. A failed round may never signal its event, so the feedback counts as an end,
// too.
bool Commands::wait_until(double limit_s) {
  const Clock::time_point end = Clock::now() + std::chrono::duration_cast<Clock::duration>(
                                                   std::chrono::duration<double>(limit_s));
  while (true) {
    const double left_ms = std::chrono::duration<double, std::milli>(end - Clock::now()).count();
    if (left_ms <= 0.0) return false;
    const uint64_t slice_ms = left_ms < kSliceMs ? static_cast<uint64_t>(left_ms) + 1 : kSliceMs;
    if (done_->waitUntilSignaledValue(round_, slice_ms)) return true;
    if (feedback_->has_failed(round_)) return true;
  }
}

// The round took too long. A device that still listens is stopped and lives; one that does not is
// lost.
void Commands::give_up() {
  device_.request_abort();
  const bool stopped = wait_until(kStopLimitS);
  device_.clear_abort();
  device_.lost_ = !stopped;
  throw DeviceError(concat("[gpu] pass: no answer from the device in ", round_limit_s_, " s; ",
                           stopped ? "it was stopped, try fewer sequences or a smaller model"
                                   : "it is lost, open a new engine"));
}

}  // namespace mtlqwen
