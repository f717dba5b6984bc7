#include "hostmetal/counters.hpp"

#include <chrono>
#include <cstring>

#include "base/error.hpp"
#include "hostmetal/error.hpp"

namespace mtlqwen::hostmetal {

uint64_t timestamp_now() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return static_cast<uint64_t>(std::chrono::nanoseconds(now).count());
}

struct DataMaker {
  static NS::Data* make(uint64_t bytes) {
    auto* data = new NS::Data;
    data->bytes_.resize(bytes);
    return data->autorelease();
  }
};

}  // namespace mtlqwen::hostmetal

namespace NS {

void* Data::mutableBytes() const { return this && !bytes_.empty() ? bytes_.data() : nullptr; }
UInteger Data::length() const { return this ? bytes_.size() : 0; }

}  // namespace NS

namespace MTL {

uint64_t Device::queryTimestampFrequency() {
  return this ? mtlqwen::hostmetal::kTimestampFrequency : 0;
}

MTL4::CounterHeap* Device::newCounterHeap(const MTL4::CounterHeapDescriptor* descriptor,
                                          NS::Error** error) {
  using namespace mtlqwen::hostmetal;
  if (!this) return nullptr;
  const NS::UInteger count = descriptor->count();
  const bool fits = descriptor->type() == MTL4::CounterHeapTypeTimestamp && count > 0;
  if (fits && count <= kMaxCounters) return new HostCounterHeap(count);
  report(error, kQueueDomain, MTL4::CommandQueueErrorInternal,
         mtlqwen::concat("[hostmetal] counter heap: not possible (got type ", descriptor->type(),
                         " and ", count, " entries, want timestamps and 1 to ", kMaxCounters, ")"));
  return nullptr;
}

}  // namespace MTL

namespace MTL4 {

using mtlqwen::hostmetal::host;

CounterHeapDescriptor* CounterHeapDescriptor::alloc() { return new CounterHeapDescriptor; }
CounterHeapDescriptor* CounterHeapDescriptor::init() { return this; }

CounterHeapType CounterHeapDescriptor::type() const {
  return this ? type_ : CounterHeapTypeInvalid;
}
void CounterHeapDescriptor::setType(CounterHeapType type) {
  if (this) type_ = type;
}
NS::UInteger CounterHeapDescriptor::count() const { return this ? count_ : 0; }
void CounterHeapDescriptor::setCount(NS::UInteger count) {
  if (this) count_ = count;
}

NS::UInteger CounterHeap::count() const { return this ? host(this)->size() : 0; }

NS::Data* CounterHeap::resolveCounterRange(NS::Range range) {
  if (!this || !host(this)->holds(range)) return nullptr;
  NS::Data* data = mtlqwen::hostmetal::DataMaker::make(range.length * sizeof(TimestampHeapEntry));
  for (NS::UInteger i = 0; i < range.length; ++i) {
    const TimestampHeapEntry entry{.timestamp = host(this)->at(range.location + i)};
    std::memcpy(static_cast<uint8_t*>(data->mutableBytes()) + i * sizeof entry, &entry,
                sizeof entry);
  }
  return data;
}

void CounterHeap::invalidateCounterRange(NS::Range range) {
  if (!this || !host(this)->holds(range)) return;
  for (NS::UInteger i = 0; i < range.length; ++i) host(this)->set(range.location + i, 0);
}

}  // namespace MTL4
