#include "gpu/heap.hpp"

#include <utility>

#include "gpu/device.hpp"
#include "gpu/foundation.hpp"

namespace mtlqwen {

Heap::Heap(Device& device, NS::SharedPtr<MTL::Heap> heap)
    : device_(&device), heap_(std::move(heap)), bytes_(heap_->size()) {
  device_->add_resident(heap_.get(), bytes_);
}

Heap::Heap(Heap&& other) noexcept
    : device_(std::exchange(other.device_, nullptr)), heap_(std::move(other.heap_)),
      bytes_(std::exchange(other.bytes_, 0)) {}

Heap& Heap::operator=(Heap&& other) noexcept {
  if (this == &other) return *this;
  reset();
  device_ = std::exchange(other.device_, nullptr);
  heap_ = std::move(other.heap_);
  bytes_ = std::exchange(other.bytes_, 0);
  return *this;
}

Heap::~Heap() { reset(); }

void Heap::reset() noexcept {
  if (device_ == nullptr) return;
  const AutoreleaseScope scope;
  device_->drain_mappings();
  device_->remove_resident(heap_.get(), bytes_);
  if (device_->lost()) {
    heap_.detach();
  } else {
    device_->commit_residency();  // the set would keep the memory alive
  }
  heap_.reset();
  device_ = nullptr;
}

}  // namespace mtlqwen
