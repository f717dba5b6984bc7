#include "hostmetal/event.hpp"

#include <algorithm>
#include <chrono>

#include "hostmetal/device.hpp"
#include "hostmetal/error.hpp"

namespace mtlqwen::hostmetal {

uint64_t HostEvent::value() const {
  const std::lock_guard lock(state_->mutex);
  return state_->value;
}

void HostEvent::signal(uint64_t value) {
  const std::lock_guard lock(state_->mutex);
  state_->value = value;
  state_->changed.notify_all();
}

bool HostEvent::wait(uint64_t value, uint64_t milliseconds) const {
  constexpr uint64_t kForever = uint64_t{1000} * 3600 * 24 * 365;  // chrono overflows at more
  const std::chrono::milliseconds limit(std::min(milliseconds, kForever));
  std::unique_lock lock(state_->mutex);
  return state_->changed.wait_for(lock, limit, [&] { return state_->value >= value; });
}

}  // namespace mtlqwen::hostmetal

namespace MTL {

using mtlqwen::hostmetal::host;

SharedEvent* Device::newSharedEvent() { return this ? new mtlqwen::hostmetal::HostEvent : nullptr; }

uint64_t SharedEvent::signaledValue() const { return this ? host(this)->value() : 0; }

void SharedEvent::setSignaledValue(uint64_t signaledValue) {
  if (this) host(this)->signal(signaledValue);
}

bool SharedEvent::waitUntilSignaledValue(uint64_t value, uint64_t milliseconds) {
  return this && host(this)->wait(value, milliseconds);
}

}  // namespace MTL
