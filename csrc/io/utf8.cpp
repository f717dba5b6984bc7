#include "io/utf8.hpp"

#include <cstddef>

namespace mtlqwen {
namespace {

constexpr size_t kPrintableLength = 80;

// Bytes of the sequence that this byte starts, 0 where none can start with it.
size_t sequence_length(uint8_t lead) {
  if (lead < 0x80) return 1;
  if (lead >= 0xC2 && lead < 0xE0) return 2;
  if (lead >= 0xE0 && lead < 0xF0) return 3;
  if (lead >= 0xF0 && lead < 0xF5) return 4;
  return 0;
}

// The second byte carries the limits against overlong forms, surrogates and code points too high.
bool second_byte_fits(uint8_t lead, uint8_t second) {
  if (lead == 0xE0 && second < 0xA0) return false;
  if (lead == 0xED && second > 0x9F) return false;
  if (lead == 0xF0 && second < 0x90) return false;
  return !(lead == 0xF4 && second > 0x8F);
}

}  // namespace

bool is_utf8(std::string_view text) {
  for (size_t i = 0; i < text.size();) {
    const auto lead = static_cast<uint8_t>(text[i]);
    const size_t length = sequence_length(lead);
    if (length == 0 || length > text.size() - i) return false;
    for (size_t j = 1; j < length; ++j) {
      if ((static_cast<uint8_t>(text[i + j]) & 0xC0) != 0x80) return false;
    }
    if (length > 1 && !second_byte_fits(lead, static_cast<uint8_t>(text[i + 1]))) return false;
    i += length;
  }
  return true;
}

void append_utf8(std::string& text, uint32_t code_point) {
  const auto tail = [&](int shift) {
    text.push_back(static_cast<char>(0x80 | ((code_point >> shift) & 0x3F)));
  };
  if (code_point < 0x80) {
    text.push_back(static_cast<char>(code_point));
  } else if (code_point < 0x800) {
    text.push_back(static_cast<char>(0xC0 | (code_point >> 6)));
    tail(0);
  } else if (code_point < 0x10000) {
    text.push_back(static_cast<char>(0xE0 | (code_point >> 12)));
    tail(6);
    tail(0);
  } else {
    text.push_back(static_cast<char>(0xF0 | (code_point >> 18)));
    tail(12);
    tail(6);
    tail(0);
  }
}

std::string printable(std::string_view text) {
  std::string out(text.substr(0, kPrintableLength));
  for (char& c : out) {
    if (c < ' ' || c > '~') c = '?';
  }
  if (text.size() > kPrintableLength) out += "...";
  return out;
}

}  // namespace mtlqwen
