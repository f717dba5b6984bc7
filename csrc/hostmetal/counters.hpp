// Counter heaps.
#pragma once
#include <Metal/Metal.hpp>
#include <atomic>
#include <cstdint>
#include <vector>

namespace mtlqwen::hostmetal {

inline constexpr uint64_t kTimestampFrequency = 1'000'000'000;  // ticks are nanoseconds
inline constexpr uint64_t kMaxCounters = 4096;                  // of a heap, Apple's limit

// Thread safe.
class HostCounterHeap final : public MTL4::CounterHeap {
 public:
  explicit HostCounterHeap(uint64_t count) : entries_(count) {}

  [[nodiscard]] uint64_t size() const { return entries_.size(); }
  [[nodiscard]] uint64_t at(uint64_t index) const { return entries_[index].load(); }
  void set(uint64_t index, uint64_t timestamp) { entries_[index].store(timestamp); }
  [[nodiscard]] bool holds(const NS::Range& range) const {
    return range.location <= size() && range.length <= size() - range.location;
  }

 private:
  std::vector<std::atomic<uint64_t>> entries_;
};

// Null for null.
[[nodiscard]] inline HostCounterHeap* host(const MTL4::CounterHeap* heap) {
  return static_cast<HostCounterHeap*>(const_cast<MTL4::CounterHeap*>(heap));
}

// The device's clock.
[[nodiscard]] uint64_t timestamp_now();

}  // namespace mtlqwen::hostmetal
