// A file descriptor that is closed when its owner goes.
#pragma once
#include <unistd.h>

#include <utility>

namespace mtlqwen {

class Descriptor {
 public:
  Descriptor() = default;
  explicit Descriptor(int opened) : id_(opened) {}  // negative: nothing is open
  Descriptor(Descriptor&& other) noexcept : id_(std::exchange(other.id_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(id_, other.id_);
    return *this;
  }
  ~Descriptor() {
    if (id_ >= 0) ::close(id_);
  }

  [[nodiscard]] bool is_open() const { return id_ >= 0; }
  [[nodiscard]] int id() const { return id_; }

 private:
  int id_ = -1;
};

}  // namespace mtlqwen
