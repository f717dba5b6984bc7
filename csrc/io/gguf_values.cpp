// Metadata of GGUF: the value kinds and their arrays.
#include <algorithm>
#include <string>
#include <utility>

#include "io/gguf_reader.hpp"
#include "io/utf8.hpp"

namespace mtlqwen {
namespace {

enum class ValueType : uint32_t {
  kU8,
  kI8,
  kU16,
  kI16,
  kU32,
  kI32,
  kF32,
  kBool,
  kString,
  kArray,
  kU64,
  kI64,
  kF64
};

// Smallest size of one element in the file: bounds what a count may claim.
uint64_t min_bytes(ValueType type) {
  switch (type) {
  case ValueType::kU8:
  case ValueType::kI8:
  case ValueType::kBool:
    return 1;
  case ValueType::kU16:
  case ValueType::kI16:
    return 2;
  case ValueType::kU32:
  case ValueType::kI32:
  case ValueType::kF32:
    return 4;
  case ValueType::kArray:
    return 12;
  default:
    return 8;
  }
}

class ValueReader {
 public:
  explicit ValueReader(ByteReader& reader) : reader_(reader) {}

  GgufValue value(std::string key) {
    key_ = printable(key);
    const ValueType value_type = type();
    if (value_type != ValueType::kArray) return {scalar(value_type)};
    std::vector<GgufArray> holder;
    holder.push_back(array(0));
    return {std::move(holder)};
  }

 private:
  ValueType type() {
    const auto id = reader_.read<uint32_t>(key_);
    if (id > static_cast<uint32_t>(ValueType::kF64)) {
      reader_.fail(key_, ": unknown kind of value (got ", id, ", want 0 to 12)");
    }
    return static_cast<ValueType>(id);
  }

  GgufValue::Data scalar(ValueType value_type) {
    switch (value_type) {
    case ValueType::kU8:
      return uint64_t{reader_.read<uint8_t>(key_)};
    case ValueType::kU16:
      return uint64_t{reader_.read<uint16_t>(key_)};
    case ValueType::kU32:
      return uint64_t{reader_.read<uint32_t>(key_)};
    case ValueType::kU64:
      return reader_.read<uint64_t>(key_);
    case ValueType::kI8:
      return int64_t{reader_.read<int8_t>(key_)};
    case ValueType::kI16:
      return int64_t{reader_.read<int16_t>(key_)};
    case ValueType::kI32:
      return int64_t{reader_.read<int32_t>(key_)};
    case ValueType::kI64:
      return reader_.read<int64_t>(key_);
    case ValueType::kF32:
      return double{reader_.read<float>(key_)};
    case ValueType::kF64:
      return reader_.read<double>(key_);
    case ValueType::kBool:
      return boolean();
    default:
      return read_gguf_string(reader_, key_, kMaxGgufStringBytes);
    }
  }

  bool boolean() {
    const auto byte = reader_.read<uint8_t>(key_);
    if (byte > 1) reader_.fail(key_, ": bad bool (got ", unsigned{byte}, ", want 0 or 1)");
    return byte == 1;
  }

  GgufArray array(uint32_t depth) {
    const ValueType element = type();
    const uint64_t count = element_count(element);
    switch (element) {
    case ValueType::kBool:
      return {scalars<bool>(element, count)};
    case ValueType::kString:
      return {scalars<std::string>(element, count)};
    case ValueType::kF32:
    case ValueType::kF64:
      return {scalars<double>(element, count)};
    case ValueType::kI8:
    case ValueType::kI16:
    case ValueType::kI32:
    case ValueType::kI64:
      return {scalars<int64_t>(element, count)};
    case ValueType::kArray:
      return {arrays(depth + 1, count)};
    default:
      return {scalars<uint64_t>(element, count)};
    }
  }

  uint64_t element_count(ValueType element) {
    const auto count = reader_.read<uint64_t>(key_);
    if (count > elements_left_) {
      reader_.fail(key_, ": too many array elements (got ", count, ", want at most ",
                   elements_left_, ")");
    }
    elements_left_ -= count;
    reader_.need(count * min_bytes(element), key_);  // at most 12 * kMaxGgufElements
    return count;
  }

  template <class T>
  std::vector<T> scalars(ValueType element, uint64_t count) {
    std::vector<T> out;
    out.reserve(count);
    for (uint64_t i = 0; i < count; ++i) out.push_back(std::get<T>(scalar(element)));
    return out;
  }

  std::vector<GgufArray> arrays(uint32_t depth, uint64_t count) {
    if (depth >= kMaxGgufArrayDepth) {
      reader_.fail(key_, ": arrays nested deeper than ", kMaxGgufArrayDepth);
    }
    std::vector<GgufArray> out;
    for (uint64_t i = 0; i < count; ++i) out.push_back(array(depth));
    return out;
  }

  ByteReader& reader_;
  std::string key_;
  uint64_t elements_left_ = kMaxGgufElements;
};

}  // namespace

std::string read_gguf_string(ByteReader& reader, std::string_view what, uint64_t max_bytes) {
  const auto count = reader.read<uint64_t>(what);
  reader.need(count, what);
  if (count > max_bytes) {
    reader.fail(what, ": text is too long (got ", count, " bytes, want at most ", max_bytes, ")");
  }
  const std::string_view text = reader.text(count, what);
  if (!is_utf8(text)) reader.fail(what, ": text is not UTF-8 (got \"", printable(text), "\")");
  return std::string(text);
}

void read_gguf_values(ByteReader& reader, uint64_t count, GgufMetadata& out) {
  ValueReader values(reader);
  for (uint64_t i = 0; i < count; ++i) {
    std::string key = read_gguf_string(reader, "metadata key", kMaxGgufNameBytes);
    if (key.empty()) reader.fail("metadata key ", i, " is empty; the file is damaged");
    GgufValue value = values.value(key);
    const std::string shown = printable(key);
    if (!out.add(std::move(key), std::move(value))) {
      reader.fail("metadata key ", shown, " occurs twice; the file is damaged");
    }
  }
}

}  // namespace mtlqwen
