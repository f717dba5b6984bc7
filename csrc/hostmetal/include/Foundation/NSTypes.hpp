// Foundation's integers.
#pragma once
#include <cstdint>

namespace NS {

using Integer = std::intptr_t;
using UInteger = std::uintptr_t;

}  // namespace NS
