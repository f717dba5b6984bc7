// Reads little-endian values from bytes that may be hostile: every read checks what is left.
#pragma once
#include <bit>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include "base/error.hpp"

namespace mtlqwen {

static_assert(std::endian::native == std::endian::little, "weight files are mapped, not swapped");

class ByteReader {
 public:
  // subject begins every message: "[gguf] model.gguf".
  ByteReader(std::span<const uint8_t> bytes, std::string subject)
      : bytes_(bytes), subject_(std::move(subject)) {}

  [[nodiscard]] uint64_t position() const { return position_; }
  [[nodiscard]] uint64_t left() const { return bytes_.size() - position_; }

  // `what` names the value in the message of a file that ends too early.
  template <class T>
  [[nodiscard]] T read(std::string_view what) {
    static_assert(std::is_arithmetic_v<T> && !std::is_same_v<T, bool>);
    need(sizeof(T), what);
    T value;
    std::memcpy(&value, bytes_.data() + position_, sizeof(T));
    position_ += sizeof(T);
    return value;
  }

  [[nodiscard]] std::string_view text(uint64_t count, std::string_view what) {
    need(count, what);
    const auto* start = reinterpret_cast<const char*>(bytes_.data() + position_);
    position_ += count;
    return {start, count};
  }

  // Throws unless `count` more bytes exist.
  void need(uint64_t count, std::string_view what) const {
    if (count > left()) {
      fail(what, ": file ends too early (got ", left(), " bytes, want ", count,
           "); download it again");
    }
  }

  template <class... Parts>
  [[noreturn]] void fail(const Parts&... parts) const {
    throw FormatError(concat(subject_, ": ", parts...));
  }

 private:
  std::span<const uint8_t> bytes_;
  std::string subject_;
  uint64_t position_ = 0;
};

}  // namespace mtlqwen
