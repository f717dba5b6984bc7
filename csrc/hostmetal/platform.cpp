// csrc/gpu/platform.hpp on machines without an Apple GPU.
#include "gpu/platform.hpp"

#include "hostmetal/cpu.hpp"
#include "hostmetal/device.hpp"
#include "hostmetal/environment.hpp"
#include "hostmetal/error.hpp"

namespace mtlqwen {

void set_abort(MTL::Device* device, bool abort) {
  if (device) hostmetal::host(device)->abort = abort ? 1 : 0;
}

void require_machine() {
  static_cast<void>(
      hostmetal::choose_isa(hostmetal::read_environment().isa, hostmetal::cpu_levels()));
}

bool is_software_device(MTL::Device* device) { return device != nullptr; }

bool prefers_int8(MTL::Device* device) {
  return device && hostmetal::host(device)->executor().has_twins();
}

bool is_abort_error(const NS::Error* error) {
  return error && hostmetal::text_of(error->domain()) == hostmetal::kAbortDomain;
}

}  // namespace mtlqwen
