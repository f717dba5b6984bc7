// A long-lived buffer from which parts are handed out once and never taken back.
#pragma once
#include <cstdint>
#include <cstring>
#include <string_view>

#include "base/error.hpp"
#include "base/math.hpp"
#include "gpu/device.hpp"

namespace mtlqwen {

// Two uses: sizes are first summed by measure(), then the buffer is made in one piece. Not thread
// safe.
class Arena {
 public:
  static constexpr uint64_t kAlignment = 256;

  Arena(Device& device, uint64_t bytes, Storage storage, std::string_view label)
      : buffer_(device.new_buffer(align_up(bytes, kAlignment), storage, label)) {}

  [[nodiscard]] static uint64_t padded(uint64_t bytes) { return align_up(bytes, kAlignment); }

  Span take(uint64_t bytes) {
    const uint64_t offset = used_;
    if (padded(bytes) > remaining()) {
      throw CapacityError(concat("[memory] arena: too small (got ", buffer_.bytes(),
                                 " bytes, want ", used_ + padded(bytes),
                                 "); this is a defect of the engine, report it"));
    }
    used_ += padded(bytes);
    return buffer_.span().part(offset, bytes);
  }

  [[nodiscard]] uint64_t remaining() const { return buffer_.bytes() - used_; }

  // Shared storage only.
  template <class T>
  Span put(const T& value) {
    const Span span = take(sizeof(T));
    std::memcpy(at(span), &value, sizeof(T));
    return span;
  }
  [[nodiscard]] void* at(Span span) const {
    return static_cast<uint8_t*>(buffer_.contents()) + (span.address - buffer_.span().address);
  }
  [[nodiscard]] const Buffer& buffer() const { return buffer_; }

 private:
  Buffer buffer_;
  uint64_t used_ = 0;
};

}  // namespace mtlqwen
