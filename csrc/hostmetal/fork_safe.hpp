// Members that a forked child must leave alone.
#pragma once
#include <unistd.h>

#include <memory>

namespace mtlqwen::hostmetal {

// Owns a T, but never destroys it in a forked child: locks may be held and threads missing there.
template <class T>
class ForkSafe {
 public:
  ForkSafe() = default;
  ~ForkSafe() {
    if (process_ != getpid()) static_cast<void>(new std::shared_ptr<T>(value_));  // never freed
  }
  ForkSafe(const ForkSafe&) = delete;
  ForkSafe& operator=(const ForkSafe&) = delete;

  T* operator->() const { return value_.get(); }
  [[nodiscard]] std::weak_ptr<T> weak() const { return value_; }

 private:
  const std::shared_ptr<T> value_ = std::make_shared<T>();
  const pid_t process_ = getpid();
};

}  // namespace mtlqwen::hostmetal
