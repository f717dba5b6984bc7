// An immutable block of bytes.
#pragma once
#include <cstdint>
#include <vector>

#include "NSObject.hpp"

namespace mtlqwen::hostmetal {
struct DataMaker;
}

namespace NS {

class Data : public Copying<Data> {
 public:
  [[nodiscard]] void* mutableBytes() const;
  [[nodiscard]] UInteger length() const;

 private:
  friend struct mtlqwen::hostmetal::DataMaker;
  Data() = default;
  mutable std::vector<uint8_t> bytes_;
};

}  // namespace NS
