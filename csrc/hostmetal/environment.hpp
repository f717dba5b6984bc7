// The environment variables of the software device, all parsed here.
#pragma once
#include <string>

namespace mtlqwen::hostmetal {

struct Environment {
  std::string isa;  // MTLQWEN_HOST_ISA; empty: the best that the CPU has
};

// Reads the variables anew: a device sees what was set when it was made.
[[nodiscard]] Environment read_environment();

}  // namespace mtlqwen::hostmetal
