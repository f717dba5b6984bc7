// The recursive-descent parser behind json.hpp; included by json.cpp and json_parser.cpp only.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

#include "io/json.hpp"

namespace mtlqwen {

class JsonParser {
 public:
  JsonParser(std::string_view text, const std::string& subject, const JsonLimits& limits)
      : text_(text), subject_(subject), limits_(limits) {}

  [[nodiscard]] JsonValue parse();

 private:
  JsonValue value(uint32_t depth);
  JsonValue object(uint32_t depth);
  JsonValue array(uint32_t depth);
  JsonValue number();
  JsonValue literal();
  std::string string();
  void escape(std::string& out);
  uint32_t code_unit();
  uint32_t code_point();
  void digits();
  JsonValue real(std::string_view token);

  void skip_space();
  [[nodiscard]] char peek() const { return position_ < text_.size() ? text_[position_] : '\0'; }
  bool take(char c);
  void expect(char c);
  [[noreturn]] void fail(std::string_view wrong) const;

  std::string_view text_;
  const std::string& subject_;
  JsonLimits limits_;
  size_t position_ = 0;
  uint64_t values_ = 0;
};

}  // namespace mtlqwen
