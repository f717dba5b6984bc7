// The platform on Apple machines. The tests of this repository compile this file against Apple's
// headers, but do not run it.
#include "base/error.hpp"
#include "gpu/foundation.hpp"
#include "gpu/platform.hpp"

namespace mtlqwen {

void set_abort(MTL::Device* /*device*/, bool /*abort*/) {}

void expect_wait(MTL4::CommandQueue* /*queue*/) {}

void set_threads(MTL::Device* /*device*/, uint32_t /*n*/) {}

uint32_t n_threads(MTL::Device* /*device*/) { return 0; }

uint32_t max_threads() { return 0; }

void require_machine() {
  const AutoreleaseScope scope;
  const NS::OperatingSystemVersion first{.majorVersion = 26, .minorVersion = 0, .patchVersion = 0};
  if (!NS::ProcessInfo::processInfo()->isOperatingSystemAtLeastVersion(first)) {
    throw DeviceError("[gpu] system: too old for Metal 4 (want macOS 26 or later); update macOS");
  }
  const auto device = NS::TransferPtr(MTL::CreateSystemDefaultDevice());
  if (!device) {
    throw DeviceError(
        "[gpu] device: this session sees no Metal device; run it where the GPU is available");
  }
  // Placement-sparse buffers: Apple's feature tables ask for family Apple7 (M1) on a Mac.
  if (!device->supportsFamily(MTL::GPUFamilyMetal4) ||
      !device->supportsFamily(MTL::GPUFamilyApple7)) {
    throw DeviceError(
        concat("[gpu] ", to_text(device->name()),
               ": cannot run Metal 4 with sparse buffers (want an Apple M1 or later)"));
  }
}

bool prefers_int16(MTL::Device* /*device*/) { return false; }

std::string arithmetic_name(MTL::Device* device) {
  const AutoreleaseScope scope;
  return concat(device ? to_text(device->name()) : "", " ",
                to_text(NS::ProcessInfo::processInfo()->operatingSystemVersionString()));
}

bool is_software_device(MTL::Device* /*device*/) { return false; }

bool is_abort_error(const NS::Error* /*error*/) { return false; }

bool inject_fault(Fault /*kind*/, uint32_t /*nth*/) { return false; }

}  // namespace mtlqwen
