#include "hostmetal/event.hpp"

#include <algorithm>
#include <chrono>
#include <utility>

#include "hostmetal/device.hpp"
#include "hostmetal/error.hpp"
#include "hostmetal/queue.hpp"

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

void HostEvent::expect_signal_of(std::weak_ptr<QueueWorker> worker) {
  const std::lock_guard lock(state_->mutex);
  state_->signaller = std::move(worker);
}

bool HostEvent::wait(uint64_t value, uint64_t milliseconds) const {
  constexpr uint64_t kForever = uint64_t{1000} * 3600 * 24 * 365;  // chrono overflows at more
  const auto end = std::chrono::steady_clock::now() +
                   std::chrono::milliseconds(std::min(milliseconds, kForever));
  const auto is_reached = [&] { return state_->value >= value; };
  std::unique_lock lock(state_->mutex);
  if (is_reached()) return true;
  if (const std::shared_ptr<QueueWorker> worker = state_->signaller.lock()) {
    lock.unlock();
    worker->help(*this, value, end);
    lock.lock();
  }
  return state_->changed.wait_until(lock, end, is_reached);
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
