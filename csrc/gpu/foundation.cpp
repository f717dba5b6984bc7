#include "gpu/foundation.hpp"

namespace mtlqwen {

NS::String* ns_string(std::string_view text) {
  return NS::String::string(std::string(text).c_str(), NS::UTF8StringEncoding);
}

std::string to_text(const NS::String* string) {
  if (string == nullptr) return {};
  const char* bytes = string->utf8String();
  return bytes == nullptr ? std::string() : std::string(bytes);
}

std::string to_text(const NS::Error* error) {
  std::string text = error == nullptr ? std::string() : to_text(error->localizedDescription());
  return text.empty() ? "the device gave no reason" : text;
}

}  // namespace mtlqwen
