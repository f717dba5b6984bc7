// csrc/gpu/platform.hpp on machines without an Apple GPU.
#include "gpu/platform.hpp"

#include "hostmetal/cpu.hpp"
#include "hostmetal/device.hpp"
#include "hostmetal/environment.hpp"
#include "hostmetal/error.hpp"
#include "hostmetal/queue.hpp"

namespace mtlqwen {

void set_abort(MTL::Device* device, bool abort) {
  if (device) hostmetal::host(device)->abort = abort ? 1 : 0;
}

void expect_wait(MTL4::CommandQueue* queue) {
  if (queue) hostmetal::host(queue)->expect_wait();
}

void set_threads(MTL::Device* device, uint32_t n) {
  if (device) hostmetal::host(device)->executor().set_threads(n);
}

uint32_t n_threads(MTL::Device* device) {
  return device ? hostmetal::host(device)->executor().n_threads() : 0;
}

uint32_t max_threads() { return hostmetal::usable_cpus(); }

void require_machine() {
  static_cast<void>(
      hostmetal::choose_isa(hostmetal::read_environment().isa, hostmetal::cpu_levels()));
}

bool is_software_device(MTL::Device* device) { return device != nullptr; }

bool prefers_int16(MTL::Device* device) {
  return device && hostmetal::host(device)->executor().has_twins();
}

std::string arithmetic_name(MTL::Device* device) {
  const hostmetal::Isa isa =
      hostmetal::choose_isa(hostmetal::read_environment().isa, hostmetal::cpu_levels());
  const bool twins = device && hostmetal::host(device)->executor().has_twins();
  return "hostmetal " + isa.name + (isa.dot ? " dot" : "") + (twins ? " twins" : " msl");
}

bool is_abort_error(const NS::Error* error) {
  return error && hostmetal::text_of(error->domain()) == hostmetal::kAbortDomain;
}

}  // namespace mtlqwen
