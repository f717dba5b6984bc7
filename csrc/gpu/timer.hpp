// Times of the device's work, from timestamps that the device itself writes.
#pragma once
#include <Metal/Metal.hpp>
#include <chrono>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace mtlqwen {

// Of one round of Commands at a time: mark() while encoding, committed() and finished() around its
// run, then times(). The device's clock is not ours: an offset is kept that lets every round begin
// after its commit and end before its answer.
class Timer {
 public:
  using Clock = std::chrono::steady_clock;
  static constexpr uint64_t kMaxMarks = 4096;  // of a round: what one counter heap holds

  explicit Timer(MTL::Device* device);  // throws DeviceError

  void begin();
  // The time at which all that was encoded before is done. More than kMaxMarks are dropped.
  void mark(MTL4::ComputeCommandEncoder* encoder);
  void committed() { committed_ = Clock::now(); }
  void finished();
  // Of the marks of the last round that finished.
  [[nodiscard]] std::span<const Clock::time_point> times() const { return times_; }

 private:
  void align(double first_s, double last_s, Clock::time_point answered);

  NS::SharedPtr<MTL4::CounterHeap> heap_;
  double tick_s_ = 0.0;
  uint64_t n_marks_ = 0;
  Clock::time_point committed_{};
  std::optional<double> offset_s_;  // steady clock minus device clock
  std::vector<Clock::time_point> times_;
};

}  // namespace mtlqwen
