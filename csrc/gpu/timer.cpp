#include "gpu/timer.hpp"

#include <algorithm>
#include <cstring>
#include <string>

#include "base/error.hpp"
#include "gpu/foundation.hpp"

namespace mtlqwen {

namespace {

double to_seconds(Timer::Clock::time_point time) {
  return std::chrono::duration<double>(time.time_since_epoch()).count();
}

Timer::Clock::time_point to_time(double seconds) {
  return Timer::Clock::time_point(
      std::chrono::duration_cast<Timer::Clock::duration>(std::chrono::duration<double>(seconds)));
}

}  // namespace

Timer::Timer(MTL::Device* device) {
  const AutoreleaseScope scope;
  const auto descriptor = NS::TransferPtr(MTL4::CounterHeapDescriptor::alloc()->init());
  descriptor->setType(MTL4::CounterHeapTypeTimestamp);
  descriptor->setCount(kMaxMarks);
  NS::Error* error = nullptr;
  heap_ = NS::TransferPtr(device->newCounterHeap(descriptor.get(), &error));
  const uint64_t frequency = device->queryTimestampFrequency();
  if (!heap_ || frequency == 0) {
    throw DeviceError(concat("[gpu] timestamps: the device has none (",
                             heap_ ? "no frequency" : to_text(error), "); run without a trace"));
  }
  tick_s_ = 1.0 / static_cast<double>(frequency);
}

void Timer::begin() {
  n_marks_ = 0;
  times_.clear();
}

void Timer::mark(MTL4::ComputeCommandEncoder* encoder) {
  if (n_marks_ == kMaxMarks) return;
  encoder->writeTimestamp(MTL4::TimestampGranularityPrecise, heap_.get(), n_marks_++);
}

void Timer::finished() {
  const Clock::time_point answered = Clock::now();
  const AutoreleaseScope scope;
  const NS::Data* data = heap_->resolveCounterRange(NS::Range(0, n_marks_));
  if (n_marks_ == 0 || data->length() != n_marks_ * sizeof(MTL4::TimestampHeapEntry)) return;
  std::vector<MTL4::TimestampHeapEntry> entries(n_marks_);
  std::memcpy(entries.data(), data->mutableBytes(), data->length());
  const auto seconds = [&](const MTL4::TimestampHeapEntry& entry) {
    return static_cast<double>(entry.timestamp) * tick_s_;
  };
  align(seconds(entries.front()), seconds(entries.back()), answered);
  for (const MTL4::TimestampHeapEntry& entry : entries) {
    times_.push_back(to_time(seconds(entry) + *offset_s_));
  }
}

// The first guess is the middle of what is possible; later rounds move it only where they must,
// which also follows clocks that drift apart.
void Timer::align(double first_s, double last_s, Clock::time_point answered) {
  const double least = to_seconds(committed_) - first_s;
  const double most = std::max(least, to_seconds(answered) - last_s);
  offset_s_ = std::clamp(offset_s_.value_or((least + most) / 2), least, most);
}

}  // namespace mtlqwen
