#include "model/config_fields.hpp"

#include <limits>

namespace mtlqwen {

const JsonValue* ConfigFields::find(std::string_view key) const {
  for (const JsonValue* level : levels_) {
    const JsonValue* value = level->find(key);
    if (value != nullptr && !value->is_null()) return value;
  }
  return nullptr;
}

uint32_t ConfigFields::u32_or(std::string_view key, uint32_t missing) const {
  const JsonValue* value = find(key);
  return value == nullptr ? missing : to_u32(key, value);
}

uint32_t ConfigFields::to_u32(std::string_view key, const JsonValue* value) const {
  const std::optional<uint64_t> number =
      value == nullptr ? std::nullopt : value->unsigned_integer();
  if (!number || *number > std::numeric_limits<uint32_t>::max()) fail(key, value, "an integer");
  return static_cast<uint32_t>(*number);
}

double ConfigFields::to_number(std::string_view key, const JsonValue* value) const {
  const std::optional<double> number = value == nullptr ? std::nullopt : value->number();
  if (!number) fail(key, value, "a number");
  return *number;
}

const JsonValue* ConfigFields::find_rope(std::string_view key) const {
  const JsonValue* parameters = find("rope_parameters");
  const JsonValue* value = parameters == nullptr ? nullptr : parameters->find(key);
  return value == nullptr ? find(key) : value;
}

double ConfigFields::rope(std::string_view key, std::optional<double> missing) const {
  const JsonValue* value = find_rope(key);
  if (value == nullptr && missing) return *missing;
  return to_number(key, value);
}

void ConfigFields::check_flag(std::string_view key, bool want) const {
  const JsonValue* value = find(key);
  if (value != nullptr && value->boolean() != want) fail(key, value, want ? "true" : "false");
}

void ConfigFields::check_silu(std::string_view key) const {
  const JsonValue* value = find(key);
  if (value == nullptr) return;
  const std::string* name = value->string();
  if (name == nullptr || (*name != "silu" && *name != "swish")) fail(key, value, "silu");
}

void ConfigFields::check_plain() const {
  for (const std::string_view key : {"quantization_config", "quantization"}) {
    if (find(key) != nullptr) {
      throw ModelError(concat(subject_, ": ", key,
                              ": quantised safetensors do not run (want BF16, ",
                              "F16 or F32); take the original checkpoint or a Q8_0 .gguf file"));
    }
  }
  check_flag("attention_bias", false);
  check_silu("hidden_act");
  for (const std::string_view name : {"rope_parameters", "rope_scaling"}) {
    const JsonValue* rope = find(name);
    for (const std::string_view key : {"rope_type", "type"}) {  // older files have the latter
      const JsonValue* type = rope == nullptr ? nullptr : rope->find(key);
      if (type != nullptr && (type->string() == nullptr || *type->string() != "default")) {
        fail(key, type, "default");
      }
    }
  }
}

}  // namespace mtlqwen
