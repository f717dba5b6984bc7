// The environment variables of the software device, all parsed here.
#pragma once
#include <cstdint>
#include <string>

namespace mtlqwen::hostmetal {

// What MTLQWEN_HOST_CHECK asks for; docs/environment.md says what each finds.
struct HostChecks {
  bool shuffle = false;
  bool poison = false;
  bool guard = false;
  bool residency = false;
  uint64_t seed = 0;  // MTLQWEN_HOST_SEED, else a random one

  [[nodiscard]] bool any() const { return shuffle || poison || guard || residency; }
};

struct Environment {
  std::string isa;        // MTLQWEN_HOST_ISA; empty: the best that the CPU has
  bool has_twins = true;  // MTLQWEN_HOST_KERNELS: auto; false: msl
  HostChecks checks;
};

// Reads the variables anew: a device sees what was set when it was made. Throws DeviceError for a value that has no meaning.
[[nodiscard]] Environment read_environment();

}  // namespace mtlqwen::hostmetal
