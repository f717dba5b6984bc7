// Physical memory behind sparse buffers.
#pragma once
#include <Metal/Metal.hpp>
#include <cstdint>

namespace mtlqwen {

class Device;

// Owns one placement heap and its membership in the device's residency set. Movable; the Device
// outlives it. Nothing may be mapped from it any more when it is destroyed: the destructor waits
// for queued unmappings.
class Heap {
 public:
  Heap() = default;
  Heap(Device& device, NS::SharedPtr<MTL::Heap> heap);
  Heap(Heap&& other) noexcept;
  Heap& operator=(Heap&& other) noexcept;
  ~Heap();

  [[nodiscard]] uint64_t bytes() const { return bytes_; }
  [[nodiscard]] MTL::Heap* get() const { return heap_.get(); }

 private:
  void reset() noexcept;

  Device* device_ = nullptr;
  NS::SharedPtr<MTL::Heap> heap_;
  uint64_t bytes_ = 0;
};

}  // namespace mtlqwen
