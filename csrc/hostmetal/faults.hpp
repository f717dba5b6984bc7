// Faults on order: tests let the nth allocation, mapping update or commit of the process fail.
#pragma once
#include "gpu/platform.hpp"

namespace mtlqwen::hostmetal {

// Whether this call is the one that was asked to fail. Any thread.
[[nodiscard]] bool should_fail(Fault kind);

}  // namespace mtlqwen::hostmetal
