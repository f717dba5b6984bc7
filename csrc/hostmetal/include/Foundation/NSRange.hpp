// A run of indices.
#pragma once
#include "NSTypes.hpp"

namespace NS {

struct Range {
  static Range Make(UInteger loc, UInteger len) { return Range(loc, len); }

  Range(UInteger loc, UInteger len) : location(loc), length(len) {}

  [[nodiscard]] bool Equal(const Range& range) const {
    return location == range.location && length == range.length;
  }
  [[nodiscard]] bool LocationInRange(UInteger loc) const { return loc >= location && loc < Max(); }
  [[nodiscard]] UInteger Max() const { return location + length; }

  UInteger location;
  UInteger length;
} __attribute__((packed));

}  // namespace NS
