// UTF-8 as files must use it: no overlong forms, no surrogates, nothing past U+10FFFF.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

namespace mtlqwen {

[[nodiscard]] bool is_utf8(std::string_view text);

// Appends one code point that is not a surrogate.
void append_utf8(std::string& text, uint32_t code_point);

// For messages: the text cut to a readable length, bytes outside printable ASCII as '?'.
[[nodiscard]] std::string printable(std::string_view text);

}  // namespace mtlqwen
