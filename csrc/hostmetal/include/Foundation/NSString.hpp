// Immutable UTF-8 text.
#pragma once
#include <string>

#include "NSObject.hpp"

namespace NS {

enum StringEncoding : UInteger {
  ASCIIStringEncoding = 1,
  UTF8StringEncoding = 4,
};

class String : public Copying<String> {
 public:
  static String* string(const char* pString, StringEncoding encoding);

  static String* alloc();
  String* init(const char* pString, StringEncoding encoding);

  [[nodiscard]] const char* utf8String() const;
  [[nodiscard]] bool isEqualToString(const String* pString) const;

 private:
  String() = default;
  std::string text_;
};

}  // namespace NS
