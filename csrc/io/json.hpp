// JSON as configs and safetensors headers need it: strict (RFC 8259), valid UTF-8, bounded.
#pragma once
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace mtlqwen {

struct JsonMember;
class JsonValue;
using JsonArray = std::vector<JsonValue>;
using JsonObject = std::vector<JsonMember>;  // sorted by name; names are unique

// One value. Integers that fit 64 bits stay exact; all other numbers are doubles, never infinite.
class JsonValue {
 public:
  using Data =
      std::variant<std::nullptr_t, bool, int64_t, double, std::string, JsonArray, JsonObject>;

  JsonValue();
  explicit JsonValue(Data data);

  [[nodiscard]] bool is_null() const { return std::holds_alternative<std::nullptr_t>(data_); }

  // Null unless the value has that type.
  [[nodiscard]] const JsonObject* object() const { return std::get_if<JsonObject>(&data_); }
  [[nodiscard]] const JsonArray* array() const { return std::get_if<JsonArray>(&data_); }
  [[nodiscard]] const std::string* string() const { return std::get_if<std::string>(&data_); }

  [[nodiscard]] std::optional<bool> boolean() const;
  [[nodiscard]] std::optional<uint64_t> unsigned_integer() const;  // none where negative
  [[nodiscard]] std::optional<double> number() const;

  // The member of an object, null where it is missing or this is no object.
  [[nodiscard]] const JsonValue* find(std::string_view name) const;

  // For messages: "string \"silu\"", "4096", "an array".
  [[nodiscard]] std::string describe() const;

 private:
  Data data_;  // null at first
};

struct JsonMember {
  std::string name;
  JsonValue value;
};

// Only here is a JsonObject a vector of a complete type.
inline JsonValue::JsonValue() = default;
inline JsonValue::JsonValue(Data data) : data_(std::move(data)) {}

struct JsonLimits {
  uint32_t depth = 32;           // the parser recurses once a level
  uint64_t values = 1ULL << 21;  // bounds memory: a byte of text may cost a whole JsonValue
};

// Throws FormatError, beginning with `subject`; a name that occurs twice in an object is an error.
[[nodiscard]] JsonValue parse_json(std::string_view text, const std::string& subject,
                                   const JsonLimits& limits = {});

// Reads a whole file of at most 128 MiB; throws FormatError.
[[nodiscard]] JsonValue read_json(const std::filesystem::path& path);

}  // namespace mtlqwen
