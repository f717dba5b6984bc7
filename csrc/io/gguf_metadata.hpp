// The metadata of a GGUF file: every value kind of the format, with typed and checked getters.
#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace mtlqwen {

struct GgufArray;

// One value. Integers of any width are widened, the sign kept by the type.
struct GgufValue {
  using Data = std::variant<bool, uint64_t, int64_t, double, std::string,
                            std::vector<GgufArray>>;  // an array: exactly one element
  Data data;

  [[nodiscard]] const GgufArray* array() const;
  [[nodiscard]] std::string describe() const;  // for messages: "string \"gpt2\"", "uint 33"
};

// All elements are of one kind.
struct GgufArray {
  std::variant<std::vector<bool>, std::vector<uint64_t>, std::vector<int64_t>, std::vector<double>,
               std::vector<std::string>, std::vector<GgufArray>>
      items;

  [[nodiscard]] size_t size() const;
};

// Getters named `find_` return nothing where the key is missing; all throw ModelError, naming the
// key, what was found and what was wanted, where the value has another kind or does not fit.
// `subject` of the messages is the file.
class GgufMetadata {
 public:
  GgufMetadata() = default;
  explicit GgufMetadata(std::string subject) : subject_(std::move(subject)) {}

  using Values = std::map<std::string, GgufValue, std::less<>>;
  [[nodiscard]] const Values& values() const { return values_; }

  // False where the key exists already.
  bool add(std::string key, GgufValue value);

  [[nodiscard]] uint32_t get_u32(std::string_view key) const;
  [[nodiscard]] float get_f32(std::string_view key) const;
  [[nodiscard]] const std::string& get_string(std::string_view key) const;

  [[nodiscard]] std::optional<uint32_t> find_u32(std::string_view key) const;
  [[nodiscard]] std::optional<float> find_f32(std::string_view key) const;
  [[nodiscard]] std::optional<bool> find_bool(std::string_view key) const;

  // Null where the key is missing; the pointers live as long as this object.
  [[nodiscard]] const std::string* find_string(std::string_view key) const;
  [[nodiscard]] const std::vector<std::string>* find_strings(std::string_view key) const;
  [[nodiscard]] const std::vector<bool>* find_bools(std::string_view key) const;
  [[nodiscard]] std::optional<std::vector<int64_t>> find_integers(std::string_view key) const;

 private:
  [[nodiscard]] const GgufValue* find(std::string_view key) const;
  [[noreturn]] void fail_missing(std::string_view key, std::string_view want) const;
  [[noreturn]] void fail_kind(std::string_view key, const GgufValue& got,
                              std::string_view want) const;

  std::string subject_;
  Values values_;
};

}  // namespace mtlqwen
