// Timestamps that the device writes while it works.
#pragma once
#include <cstdint>

#include "MTLTypes.hpp"

namespace MTL4 {

enum CounterHeapType : NS::Integer {
  CounterHeapTypeInvalid = 0,
  CounterHeapTypeTimestamp = 1,
};

enum TimestampGranularity : NS::Integer {
  TimestampGranularityRelaxed = 0,
  TimestampGranularityPrecise = 1,
};

// Ticks of MTL::Device::queryTimestampFrequency().
struct TimestampHeapEntry {
  uint64_t timestamp;
} __attribute__((packed));

class CounterHeapDescriptor : public NS::Copying<CounterHeapDescriptor> {
 public:
  static CounterHeapDescriptor* alloc();
  CounterHeapDescriptor* init();

  [[nodiscard]] CounterHeapType type() const;
  void setType(CounterHeapType type);
  [[nodiscard]] NS::UInteger count() const;
  void setCount(NS::UInteger count);  // at most 4096

 private:
  CounterHeapDescriptor() = default;
  CounterHeapType type_ = CounterHeapTypeInvalid;
  NS::UInteger count_ = 0;
};

class CounterHeap : public NS::Referencing<CounterHeap> {
 public:
  [[nodiscard]] NS::UInteger count() const;
  // TimestampHeapEntry of each; 0 where none was written. Autoreleased; null for a range outside of the heap. Only once
  // the work that writes them is done.
  NS::Data* resolveCounterRange(NS::Range range);
  void invalidateCounterRange(NS::Range range);

 protected:
  CounterHeap() = default;
};

}  // namespace MTL4
