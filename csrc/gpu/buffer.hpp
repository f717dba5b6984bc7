// Memory that kernels see. A Buffer is a Metal allocation; a Span is a typed-by-use part of one.
#pragma once
#include <Metal/Metal.hpp>
#include <cstdint>

namespace mtlqwen {

class Device;

enum class Storage : uint8_t { kShared, kPrivate };  // private memory has no contents()

// A part of an allocation: what dispatches bind and what hazards are tracked by.
struct Span {
  uint64_t address = 0;  // GPU address of the first byte
  uint64_t bytes = 0;

  [[nodiscard]] Span part(uint64_t offset, uint64_t n_bytes) const {
    return {.address = address + offset, .bytes = n_bytes};
  }
};

// Owns one allocation and its membership in the device's residency set. Movable; the Device
// outlives it.
class Buffer {
 public:
  Buffer() = default;
  // memory_bytes: what it adds to Device::allocated_bytes(); 0 for a sparse buffer, whose memory is
  // its heaps'.
  Buffer(Device& device, NS::SharedPtr<MTL::Buffer> buffer, uint64_t memory_bytes);
  Buffer(Buffer&& other) noexcept;
  Buffer& operator=(Buffer&& other) noexcept;
  ~Buffer();

  [[nodiscard]] uint64_t bytes() const { return bytes_; }
  [[nodiscard]] Span span() const { return {.address = address_, .bytes = bytes_}; }
  [[nodiscard]] void* contents() const { return contents_; }  // null where private
  [[nodiscard]] MTL::Buffer* get() const { return buffer_.get(); }
  template <class T>
  [[nodiscard]] T* as() const {
    return static_cast<T*>(contents_);
  }

 private:
  void reset() noexcept;

  Device* device_ = nullptr;
  NS::SharedPtr<MTL::Buffer> buffer_;
  uint64_t address_ = 0;
  uint64_t bytes_ = 0;
  uint64_t memory_bytes_ = 0;
  void* contents_ = nullptr;
};

}  // namespace mtlqwen
