// One command buffer: dispatches, barriers, copies, then one commit and one wait.
#pragma once
#include <Metal/Metal.hpp>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>

#include "gpu/device.hpp"
#include "gpu/timer.hpp"

namespace mtlqwen {

struct Grid {
  uint32_t groups[3] = {1, 1, 1};  // threadgroups
  uint32_t threads = 32;           // of one threadgroup
  uint32_t threadgroup_bytes = 0;  // [[threadgroup(0)]], multiple of 16
};

// A round that takes longer is taken for a GPU that hangs. Far above the slowest pass of a
// sanitizer build on one CPU core; an Apple GPU kills its own work after seconds.
inline constexpr double kRoundLimitS = 600.0;

// Reusable: begin() .. commit() .. wait(), over and over. Within one round dispatches are unordered
// unless a barrier stands between them; mappings queued on the Device before begin() are visible to
// all of them. After an exception of wait(), or instead of commit(), begin() starts afresh and drops
// what was encoded. One thread at a time; the Device outlives it.
class Commands {
 public:
  explicit Commands(Device& device, double round_limit_s = kRoundLimitS);
  ~Commands();
  Commands(const Commands&) = delete;
  Commands& operator=(const Commands&) = delete;

  void begin();
  // Encoding: between begin() and the commit, inside of one AutoreleaseScope of the caller, since a
  // scope for each of hundreds of calls takes as long as the calls.
  // buffers[i] is the GPU address bound to [[buffer(i)]].
  void dispatch(const Pipeline& pipeline, std::span<const uint64_t> buffers, const Grid& grid);
  void copy(const Buffer& from, uint64_t from_offset, const Buffer& to, uint64_t to_offset,
            uint64_t bytes);
  void barrier();  // what follows sees all that was dispatched or copied before
  void commit();   // the GPU begins; wait() must follow
  // Returns when the GPU is done. Throws DeviceError with the device's words, CapacityError where it
  // is out of memory (mappings queued before included), Aborted after
  // Device::request_abort().
  void wait();
  void commit_and_wait() {
    commit();
    wait();
  }
  [[nodiscard]] double gpu_seconds() const { return gpu_seconds_; }  // of the last round

  // Takes the marks of the rounds to come; null: nobody does, as at first.
  void set_timer(std::shared_ptr<Timer> timer) { timer_ = std::move(timer); }
  // The time at which all that was encoded before is done.
  void mark() {
    if (timer_) timer_->mark(encoder_.get());
  }
  // Of the last round; none where nobody took them, or it failed.
  [[nodiscard]] std::span<const Timer::Clock::time_point> marks() const {
    return timer_ ? timer_->times() : std::span<const Timer::Clock::time_point>();
  }

 private:
  struct Feedback;
  void abandon() noexcept;
  void wait_for_feedback();
  [[nodiscard]] bool wait_until(double limit_s);
  void give_up();

  Device& device_;
  double round_limit_s_;
  NS::SharedPtr<MTL4::CommandAllocator> allocator_;
  NS::SharedPtr<MTL4::CommandBuffer> commands_;
  NS::SharedPtr<MTL4::ArgumentTable> arguments_;
  NS::SharedPtr<MTL4::ComputeCommandEncoder> encoder_;  // null outside a round
  NS::SharedPtr<MTL::SharedEvent> done_;
  // The other owner is the handler of a commit, which may outlive this.
  std::shared_ptr<Feedback> feedback_;
  const MTL::ComputePipelineState* pipeline_ = nullptr;  // what the encoder has set
  uint32_t threadgroup_bytes_ = 0;                       // what the encoder has set
  uint64_t round_ = 0;
  uint64_t mapping_updates_ = 0;       // of the device, that this round is ordered after
  uint64_t mapping_updates_seen_ = 0;  // the same, of the last round that succeeded
  double gpu_seconds_ = 0.0;
  std::shared_ptr<Timer> timer_;
};

}  // namespace mtlqwen
