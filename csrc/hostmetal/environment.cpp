#include "hostmetal/environment.hpp"

#include <cstdlib>

namespace mtlqwen::hostmetal {

Environment read_environment() {
  const char* isa = std::getenv("MTLQWEN_HOST_ISA");
  return {.isa = isa ? isa : ""};
}

}  // namespace mtlqwen::hostmetal
