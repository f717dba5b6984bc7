#include "io/json.hpp"

#include <algorithm>
#include <cmath>

#include "base/error.hpp"
#include "io/json_parser.hpp"
#include "io/mapped_file.hpp"
#include "io/utf8.hpp"

namespace mtlqwen {
namespace {

constexpr uint64_t kMaxFileBytes = 128ULL << 20;

}  // namespace

std::optional<bool> JsonValue::boolean() const {
  const bool* value = std::get_if<bool>(&data_);
  return value == nullptr ? std::nullopt : std::optional(*value);
}

std::optional<uint64_t> JsonValue::unsigned_integer() const {
  const int64_t* value = std::get_if<int64_t>(&data_);
  if (value == nullptr || *value < 0) return std::nullopt;
  return static_cast<uint64_t>(*value);
}

std::optional<double> JsonValue::number() const {
  if (const int64_t* value = std::get_if<int64_t>(&data_)) return static_cast<double>(*value);
  const double* value = std::get_if<double>(&data_);
  return value == nullptr ? std::nullopt : std::optional(*value);
}

const JsonValue* JsonValue::find(std::string_view name) const {
  const JsonObject* members = object();
  if (members == nullptr) return nullptr;
  const auto place =
      std::lower_bound(members->begin(), members->end(), name,
                       [](const JsonMember& a, std::string_view b) { return a.name < b; });
  return place != members->end() && place->name == name ? &place->value : nullptr;
}

std::string JsonValue::describe() const {
  if (is_null()) return "null";
  if (const auto flag = boolean()) return *flag ? "true" : "false";
  if (const int64_t* integer = std::get_if<int64_t>(&data_)) return concat(*integer);
  if (const auto value = number()) return concat(*value);
  if (const std::string* text = string()) return concat('"', printable(*text), '"');
  return array() != nullptr ? "an array" : "an object";
}

JsonValue parse_json(std::string_view text, const std::string& subject, const JsonLimits& limits) {
  return JsonParser(text, subject, limits).parse();
}

JsonValue read_json(const std::filesystem::path& path) {
  const MappedFile file(path);
  const std::span<const uint8_t> bytes = file.bytes();
  const std::string subject = concat("[json] ", path.string());
  if (bytes.size() > kMaxFileBytes) {
    throw FormatError(concat(subject, ": file is too large (got ", bytes.size(),
                             " bytes, want at most ", kMaxFileBytes, ")"));
  }
  return parse_json({reinterpret_cast<const char*>(bytes.data()), bytes.size()}, subject);
}

}  // namespace mtlqwen
