#include "io/json_parser.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <locale>
#include <sstream>

#include "base/error.hpp"
#include "io/utf8.hpp"

namespace mtlqwen {
namespace {

constexpr size_t kMaxNumberLength = 64;

bool is_digit(char c) { return c >= '0' && c <= '9'; }

}  // namespace

void JsonParser::fail(std::string_view wrong) const {
  const std::string near = printable(text_.substr(std::min(position_, text_.size()), 12));
  throw FormatError(concat(subject_, ": invalid JSON at byte ", position_, ": ", wrong, " (got \"",
                           near, "\"); the file is damaged or not JSON"));
}

JsonValue JsonParser::parse() {
  if (!is_utf8(text_)) fail("text is not UTF-8");
  JsonValue root = value(0);
  skip_space();
  if (position_ != text_.size()) fail("text after the end of the value");
  return root;
}

void JsonParser::skip_space() {
  while (position_ < text_.size()) {
    const char c = text_[position_];
    if (c != ' ' && c != '\n' && c != '\t' && c != '\r') return;
    ++position_;
  }
}

bool JsonParser::take(char c) {
  if (position_ >= text_.size() || text_[position_] != c) return false;
  ++position_;
  return true;
}

void JsonParser::expect(char c) {
  skip_space();
  if (!take(c)) fail(concat("want '", c, "'"));
}

JsonValue JsonParser::value(uint32_t depth) {
  if (depth >= limits_.depth) fail(concat("nested deeper than ", limits_.depth));
  if (++values_ > limits_.values) fail(concat("more than ", limits_.values, " values"));
  skip_space();
  const char c = peek();
  if (c == '{') return object(depth);
  if (c == '[') return array(depth);
  if (c == '"') return JsonValue(string());
  if (c == '-' || is_digit(c)) return number();
  return literal();
}

JsonValue JsonParser::object(uint32_t depth) {
  JsonObject members;
  expect('{');
  skip_space();
  if (take('}')) return JsonValue(std::move(members));
  do {
    skip_space();
    if (peek() != '"') fail("want a member name");
    std::string name = string();
    expect(':');
    members.push_back({std::move(name), value(depth + 1)});
    skip_space();
  } while (take(','));
  expect('}');
  const auto by_name = [](const JsonMember& a, const JsonMember& b) { return a.name < b.name; };
  std::sort(members.begin(), members.end(), by_name);
  const auto same = [](const JsonMember& a, const JsonMember& b) { return a.name == b.name; };
  const auto twice = std::adjacent_find(members.begin(), members.end(), same);
  if (twice != members.end()) fail(concat("name \"", printable(twice->name), "\" occurs twice"));
  return JsonValue(std::move(members));
}

JsonValue JsonParser::array(uint32_t depth) {
  JsonArray items;
  expect('[');
  skip_space();
  if (take(']')) return JsonValue(std::move(items));
  do {
    items.push_back(value(depth + 1));
    skip_space();
  } while (take(','));
  expect(']');
  return JsonValue(std::move(items));
}

JsonValue JsonParser::literal() {
  const auto starts = [&](std::string_view word) {
    if (text_.substr(position_, word.size()) != word) return false;
    position_ += word.size();
    return true;
  };
  if (starts("true")) return JsonValue(true);
  if (starts("false")) return JsonValue(false);
  if (starts("null")) return JsonValue(nullptr);
  fail("want a value");
}

void JsonParser::digits() {
  if (!is_digit(peek())) fail("want a digit");
  while (is_digit(peek())) ++position_;
}

JsonValue JsonParser::number() {
  const size_t start = position_;
  bool whole = true;
  take('-');
  if (!take('0')) digits();
  if (take('.')) {
    whole = false;
    digits();
  }
  if (take('e') || take('E')) {
    whole = false;
    if (!take('+')) take('-');
    digits();
  }
  const std::string_view token = text_.substr(start, position_ - start);
  if (token.size() > kMaxNumberLength) fail("number is too long");
  int64_t integer = 0;
  const auto end = token.data() + token.size();
  if (whole && std::from_chars(token.data(), end, integer).ec == std::errc()) {
    return JsonValue(integer);
  }
  return real(token);
}

// Apple's libc++ has no from_chars for double before 20, and strtod follows the process locale.
JsonValue JsonParser::real(std::string_view token) {
  std::istringstream in{std::string(token)};
  in.imbue(std::locale::classic());
  double parsed = 0.0;
  in >> parsed;
  if (in.fail() || !std::isfinite(parsed)) fail("number is out of range");
  return JsonValue(parsed);
}

std::string JsonParser::string() {
  std::string out;
  expect('"');
  while (position_ < text_.size()) {
    const char c = text_[position_++];
    if (c == '"') return out;
    if (static_cast<unsigned char>(c) < 0x20) fail("control character in a string");
    if (c == '\\') {
      escape(out);
    } else {
      out.push_back(c);
    }
  }
  fail("string without an end");
}

void JsonParser::escape(std::string& out) {
  static constexpr std::string_view kNames = "\"\\/bfnrt";
  static constexpr std::string_view kMeanings = "\"\\/\b\f\n\r\t";
  if (take('u')) {
    append_utf8(out, code_point());
    return;
  }
  const size_t which = position_ < text_.size() ? kNames.find(text_[position_]) : kNames.npos;
  if (which == kNames.npos) fail("unknown escape in a string");
  ++position_;
  out.push_back(kMeanings[which]);
}

// The code point of \uXXXX, the 'u' already taken; characters past U+FFFF come as two of them.
uint32_t JsonParser::code_point() {
  const uint32_t first = code_unit();
  if (first < 0xD800 || first > 0xDFFF) return first;
  if (first > 0xDBFF || !take('\\') || !take('u')) fail("half of a surrogate pair");
  const uint32_t second = code_unit();
  if (second < 0xDC00 || second > 0xDFFF) fail("half of a surrogate pair");
  return 0x10000 + ((first - 0xD800) << 10) + (second - 0xDC00);
}

uint32_t JsonParser::code_unit() {
  const std::string_view token = text_.substr(std::min(position_, text_.size()), 4);
  uint32_t unit = 0;
  const auto end = token.data() + token.size();
  const auto result = std::from_chars(token.data(), end, unit, 16);
  if (token.size() != 4 || result.ec != std::errc() || result.ptr != end) {
    fail("want four hexadecimal digits");
  }
  position_ += 4;
  return unit;
}

}  // namespace mtlqwen
