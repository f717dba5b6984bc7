// What went wrong: a domain, a code of that domain, and a sentence.
#pragma once
#include "NSObject.hpp"
#include "NSSharedPtr.hpp"
#include "NSString.hpp"

namespace mtlqwen::hostmetal {
struct ErrorMaker;
}

namespace NS {

using ErrorDomain = class String*;

class Error : public Copying<Error> {
 public:
  [[nodiscard]] Integer code() const;
  [[nodiscard]] ErrorDomain domain() const;
  [[nodiscard]] class String* localizedDescription() const;

 private:
  friend struct mtlqwen::hostmetal::ErrorMaker;
  Error() = default;
  SharedPtr<String> domain_;
  Integer code_ = 0;
  SharedPtr<String> description_;
};

}  // namespace NS
