// The address of a file.
#pragma once
#include <string>

#include "NSObject.hpp"

namespace NS {

class URL : public Copying<URL> {
 public:
  static URL* fileURLWithPath(const class String* pPath);

  [[nodiscard]] const char* fileSystemRepresentation() const;

 private:
  URL() = default;
  std::string path_;
};

}  // namespace NS
