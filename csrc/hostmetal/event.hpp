// Shared events.
#pragma once
#include <Metal/MTLEvent.hpp>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>

#include "hostmetal/fork_safe.hpp"

namespace mtlqwen::hostmetal {

class QueueWorker;

// Thread safe.
class HostEvent final : public MTL::SharedEvent {
 public:
  [[nodiscard]] uint64_t value() const;
  void signal(uint64_t value);
  // Who waits carries out work of the queue that is to signal, see QueueWorker::help().
  [[nodiscard]] bool wait(uint64_t value, uint64_t milliseconds) const;
  void expect_signal_of(std::weak_ptr<QueueWorker> worker);

 private:
  struct State {
    std::mutex mutex;
    std::condition_variable changed;
    uint64_t value = 0;
    std::weak_ptr<QueueWorker> signaller;
  };
  ForkSafe<State> state_;
};

// Every event of this device is a shared one. Null for null.
[[nodiscard]] inline HostEvent* host(const MTL::Event* event) {
  return static_cast<HostEvent*>(const_cast<MTL::Event*>(event));
}

}  // namespace mtlqwen::hostmetal
