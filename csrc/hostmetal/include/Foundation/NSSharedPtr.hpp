// A smart pointer that owns one reference.
#pragma once
#include <cstddef>
#include <type_traits>
#include <utility>

namespace NS {

template <class _Class>
class SharedPtr {
 public:
  SharedPtr() = default;
  SharedPtr(std::nullptr_t) noexcept {}
  SharedPtr(const SharedPtr& other) noexcept : object_(other.object_) { retain(); }
  SharedPtr(SharedPtr&& other) noexcept : object_(std::exchange(other.object_, nullptr)) {}
  template <class _Other>
    requires std::is_convertible_v<_Other*, _Class*>
  SharedPtr(const SharedPtr<_Other>& other) noexcept : object_(other.get()) {
    retain();
  }
  template <class _Other>
    requires std::is_convertible_v<_Other*, _Class*>
  SharedPtr(SharedPtr<_Other>&& other) noexcept : object_(other.get()) {
    other.detach();
  }
  ~SharedPtr() { reset(); }

  SharedPtr& operator=(SharedPtr other) noexcept {
    std::swap(object_, other.object_);
    return *this;
  }

  [[nodiscard]] _Class* get() const { return object_; }
  _Class* operator->() const { return object_; }
  explicit operator bool() const { return object_ != nullptr; }

  void reset() {
    if (_Class* object = std::exchange(object_, nullptr)) object->release();
  }
  // Gives the reference up without releasing it.
  void detach() { object_ = nullptr; }

 private:
  template <class _Other>
  friend SharedPtr<_Other> TransferPtr(_Other* object);
  template <class _Other>
  friend SharedPtr<_Other> RetainPtr(_Other* object);

  void retain() {
    if (object_) object_->retain();
  }

  _Class* object_ = nullptr;
};

template <class _Class, class _Other>
bool operator==(const SharedPtr<_Class>& left, const SharedPtr<_Other>& right) {
  return left.get() == right.get();
}

// Takes over the one reference of an object from alloc, new*, copy or Create*.
template <class _Class>
SharedPtr<_Class> TransferPtr(_Class* object) {
  SharedPtr<_Class> owner;
  owner.object_ = object;
  return owner;
}

// Adds a reference to an object that something else owns.
template <class _Class>
SharedPtr<_Class> RetainPtr(_Class* object) {
  SharedPtr<_Class> owner = TransferPtr(object);
  owner.retain();
  return owner;
}

}  // namespace NS
