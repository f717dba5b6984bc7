#include "io/gguf_metadata.hpp"

#include <cmath>
#include <limits>
#include <utility>

#include "base/error.hpp"
#include "io/utf8.hpp"

namespace mtlqwen {
namespace {

template <class Items>
const Items* items_of(const GgufValue& value) {
  const GgufArray* array = value.array();
  return array == nullptr ? nullptr : std::get_if<Items>(&array->items);
}

}  // namespace

const GgufArray* GgufValue::array() const {
  const auto* holder = std::get_if<std::vector<GgufArray>>(&data);
  return holder == nullptr ? nullptr : &holder->front();
}

std::string GgufValue::describe() const {
  if (const bool* flag = std::get_if<bool>(&data)) return *flag ? "bool true" : "bool false";
  if (const auto* integer = std::get_if<uint64_t>(&data)) return concat("integer ", *integer);
  if (const auto* integer = std::get_if<int64_t>(&data)) return concat("integer ", *integer);
  if (const auto* number = std::get_if<double>(&data)) return concat("float ", *number);
  if (const auto* text = std::get_if<std::string>(&data)) {
    return concat("string \"", printable(*text), '"');
  }
  return concat("array of ", array()->size());
}

size_t GgufArray::size() const {
  return std::visit([](const auto& elements) { return elements.size(); }, items);
}

bool GgufMetadata::add(std::string key, GgufValue value) {
  return values_.emplace(std::move(key), std::move(value)).second;
}

const GgufValue* GgufMetadata::find(std::string_view key) const {
  const auto place = values_.find(key);
  return place == values_.end() ? nullptr : &place->second;
}

void GgufMetadata::fail_missing(std::string_view key, std::string_view want) const {
  throw ModelError(concat(subject_, ": metadata key ", key, " is missing (want ", want,
                          "); the file is not a complete model"));
}

void GgufMetadata::fail_kind(std::string_view key, const GgufValue& got,
                             std::string_view want) const {
  throw ModelError(concat(subject_, ": metadata key ", key, " has a wrong value (got ",
                          got.describe(), ", want ", want, ")"));
}

uint32_t GgufMetadata::get_u32(std::string_view key) const {
  const std::optional<uint32_t> value = find_u32(key);
  if (!value) fail_missing(key, "an unsigned 32-bit integer");
  return *value;
}

float GgufMetadata::get_f32(std::string_view key) const {
  const std::optional<float> value = find_f32(key);
  if (!value) fail_missing(key, "a float");
  return *value;
}

const std::string& GgufMetadata::get_string(std::string_view key) const {
  const std::string* value = find_string(key);
  if (value == nullptr) fail_missing(key, "a string");
  return *value;
}

std::optional<uint32_t> GgufMetadata::find_u32(std::string_view key) const {
  const GgufValue* value = find(key);
  if (value == nullptr) return std::nullopt;
  const auto* big = std::get_if<uint64_t>(&value->data);
  const auto* with_sign = std::get_if<int64_t>(&value->data);
  const bool fits = (big != nullptr && std::in_range<uint32_t>(*big)) ||
                    (with_sign != nullptr && std::in_range<uint32_t>(*with_sign));
  if (!fits) fail_kind(key, *value, "an unsigned 32-bit integer");
  return big != nullptr ? static_cast<uint32_t>(*big) : static_cast<uint32_t>(*with_sign);
}

std::optional<float> GgufMetadata::find_f32(std::string_view key) const {
  const GgufValue* value = find(key);
  if (value == nullptr) return std::nullopt;
  const auto* number = std::get_if<double>(&value->data);
  const bool fits = number != nullptr && std::isfinite(*number) &&
                    std::fabs(*number) <= static_cast<double>(std::numeric_limits<float>::max());
  if (!fits) fail_kind(key, *value, "a finite float");
  return static_cast<float>(*number);
}

std::optional<bool> GgufMetadata::find_bool(std::string_view key) const {
  const GgufValue* value = find(key);
  if (value == nullptr) return std::nullopt;
  const bool* flag = std::get_if<bool>(&value->data);
  if (flag == nullptr) fail_kind(key, *value, "a bool");
  return *flag;
}

const std::string* GgufMetadata::find_string(std::string_view key) const {
  const GgufValue* value = find(key);
  if (value == nullptr) return nullptr;
  const auto* text = std::get_if<std::string>(&value->data);
  if (text == nullptr) fail_kind(key, *value, "a string");
  return text;
}

const std::vector<std::string>* GgufMetadata::find_strings(std::string_view key) const {
  const GgufValue* value = find(key);
  if (value == nullptr) return nullptr;
  const auto* items = items_of<std::vector<std::string>>(*value);
  if (items == nullptr) fail_kind(key, *value, "an array of strings");
  return items;
}

const std::vector<bool>* GgufMetadata::find_bools(std::string_view key) const {
  const GgufValue* value = find(key);
  if (value == nullptr) return nullptr;
  const auto* items = items_of<std::vector<bool>>(*value);
  if (items == nullptr) fail_kind(key, *value, "an array of bools");
  return items;
}

std::optional<std::vector<int64_t>> GgufMetadata::find_integers(std::string_view key) const {
  const GgufValue* value = find(key);
  if (value == nullptr) return std::nullopt;
  if (const auto* items = items_of<std::vector<int64_t>>(*value)) return *items;
  const auto* items = items_of<std::vector<uint64_t>>(*value);
  if (items == nullptr) fail_kind(key, *value, "an array of integers");
  std::vector<int64_t> out;
  for (const uint64_t item : *items) {
    if (!std::in_range<int64_t>(item)) fail_kind(key, *value, "an array of 64-bit integers");
    out.push_back(static_cast<int64_t>(item));
  }
  return out;
}

}  // namespace mtlqwen
