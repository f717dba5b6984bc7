// A counter that queues and threads signal and wait for.
#pragma once
#include <cstdint>

#include "MTLTypes.hpp"

namespace MTL {

class Event : public NS::Referencing<Event> {
 protected:
  Event() = default;
};

class SharedEvent : public NS::Referencing<SharedEvent, Event> {
 public:
  [[nodiscard]] uint64_t signaledValue() const;
  void setSignaledValue(uint64_t signaledValue);
  // False where the time ran out first.
  bool waitUntilSignaledValue(uint64_t value, uint64_t milliseconds);

 protected:
  SharedEvent() = default;
};

}  // namespace MTL
