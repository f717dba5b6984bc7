// The fields of a Hugging Face config.json by name, and what is refused of any model.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "io/json.hpp"

namespace mtlqwen {

// Errors are ModelError, naming the field, what was found and what runs.
class ConfigFields {
 public:
  // The first of `levels` that has a field gives it; they outlive this. `subject` begins messages.
  ConfigFields(std::vector<const JsonValue*> levels, std::string subject)
      : levels_(std::move(levels)), subject_(std::move(subject)) {}

  [[nodiscard]] const std::string& subject() const { return subject_; }

  // Null where it is missing or null in all levels.
  [[nodiscard]] const JsonValue* find(std::string_view key) const;
  [[nodiscard]] uint32_t u32(std::string_view key) const { return to_u32(key, find(key)); }
  [[nodiscard]] uint32_t u32_or(std::string_view key, uint32_t missing) const;
  [[nodiscard]] uint32_t to_u32(std::string_view key, const JsonValue* value) const;
  [[nodiscard]] double to_number(std::string_view key, const JsonValue* value) const;

  // A field of rope_parameters, or one beside it, as older files have it.
  [[nodiscard]] const JsonValue* find_rope(std::string_view key) const;
  [[nodiscard]] double rope(std::string_view key, std::optional<double> missing) const;

  void check_flag(std::string_view key, bool want) const;
  void check_silu(std::string_view key) const;
  // Refuses quantised weights, biases, other activations and stretched positions.
  void check_plain() const;

  [[noreturn]] void fail(std::string_view key, const JsonValue* got, std::string_view want) const {
    throw ModelError(concat(subject_, ": ", key, " is not one that runs (got ",
                            got == nullptr ? "nothing" : got->describe(), ", want ", want, ")"));
  }

 private:
  std::vector<const JsonValue*> levels_;
  std::string subject_;
};

}  // namespace mtlqwen
