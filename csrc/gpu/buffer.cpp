#include "gpu/buffer.hpp"

#include <utility>

#include "gpu/device.hpp"
#include "gpu/foundation.hpp"

namespace mtlqwen {

Buffer::Buffer(Device& device, NS::SharedPtr<MTL::Buffer> buffer, uint64_t memory_bytes)
    : device_(&device), buffer_(std::move(buffer)), address_(buffer_->gpuAddress()),
      bytes_(buffer_->length()), memory_bytes_(memory_bytes) {
  if (buffer_->storageMode() == MTL::StorageModeShared) contents_ = buffer_->contents();
  device_->add_resident(buffer_.get(), memory_bytes_);
}

Buffer::Buffer(Buffer&& other) noexcept
    : device_(std::exchange(other.device_, nullptr)), buffer_(std::move(other.buffer_)),
      address_(std::exchange(other.address_, 0)), bytes_(std::exchange(other.bytes_, 0)),
      memory_bytes_(std::exchange(other.memory_bytes_, 0)),
      contents_(std::exchange(other.contents_, nullptr)) {}

Buffer& Buffer::operator=(Buffer&& other) noexcept {
  if (this == &other) return *this;
  reset();
  device_ = std::exchange(other.device_, nullptr);
  buffer_ = std::move(other.buffer_);
  address_ = std::exchange(other.address_, 0);
  bytes_ = std::exchange(other.bytes_, 0);
  memory_bytes_ = std::exchange(other.memory_bytes_, 0);
  contents_ = std::exchange(other.contents_, nullptr);
  return *this;
}

Buffer::~Buffer() { reset(); }

void Buffer::reset() noexcept {
  if (device_ == nullptr) return;
  const AutoreleaseScope scope;
  device_->drain_mappings();
  device_->remove_resident(buffer_.get(), memory_bytes_);
  // A GPU that never answered may still write here: such memory is never given back.
  if (device_->lost()) buffer_.detach();
  buffer_.reset();
  device_ = nullptr;
}

}  // namespace mtlqwen
