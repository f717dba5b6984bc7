#include "hostmetal/device.hpp"

#include <algorithm>

#include "hostmetal/cpu.hpp"
#include "hostmetal/error.hpp"
#include "hostmetal/residency.hpp"
#include "hostmetal/resource.hpp"

namespace mtlqwen::hostmetal {

namespace {

// Address space for sparse buffers costs nothing, also where memory is small; the executor refuses what memory cannot hold.
constexpr uint64_t kLeastMaxBufferBytes = uint64_t{64} << 30;

}  // namespace

HostDevice::HostDevice(std::unique_ptr<Executor> executor, const HostChecks& the_checks)
    : max_buffer_bytes(std::max(physical_memory(), kLeastMaxBufferBytes)), checks(the_checks),
      executor_(std::move(executor)), process_(getpid()) {}

}  // namespace mtlqwen::hostmetal

namespace MTL {

using mtlqwen::hostmetal::host;
using mtlqwen::hostmetal::HostDevice;

Device* CreateSystemDefaultDevice() {
  const auto environment = mtlqwen::hostmetal::read_environment();
  return new HostDevice(mtlqwen::hostmetal::make_cpu_executor(environment), environment.checks);
}

NS::String* Device::name() const {
  if (!this) return nullptr;
  const auto& device = *static_cast<const HostDevice*>(this);
  return mtlqwen::hostmetal::autoreleased(device.executor().name());
}

bool Device::supportsFamily(GPUFamily gpuFamily) {
  if (!this) return false;
  // Metal 4 begins with Apple7 (M1); later families promise instructions that our kernel shim does not have.
  return (gpuFamily >= GPUFamilyApple1 && gpuFamily <= GPUFamilyApple7) ||
         (gpuFamily >= GPUFamilyCommon1 && gpuFamily <= GPUFamilyCommon3) ||
         gpuFamily == GPUFamilyMac2 || gpuFamily == GPUFamilyMetal3 || gpuFamily == GPUFamilyMetal4;
}

// Three quarters of the memory: what Apple's desktops recommend of theirs.
uint64_t Device::recommendedMaxWorkingSetSize() const {
  return this ? mtlqwen::hostmetal::physical_memory() / 4 * 3 : 0;
}

NS::UInteger Device::maxBufferLength() const {
  return this ? static_cast<const HostDevice*>(this)->max_buffer_bytes : 0;
}

NS::UInteger Device::maxThreadgroupMemoryLength() const { return this ? MSL_THREADGROUP_BYTES : 0; }

Size Device::maxThreadsPerThreadgroup() const {
  constexpr NS::UInteger kMax = MSL_MAX_THREADS;
  return this ? Size(kMax, kMax, kMax) : Size(0, 0, 0);
}

NS::UInteger Device::currentAllocatedSize() const {
  return this ? static_cast<const HostDevice*>(this)->allocated_bytes.load() : 0;
}

NS::UInteger Device::sparseTileSizeInBytes(SparsePageSize sparsePageSize) {
  return this ? mtlqwen::hostmetal::tile_bytes(sparsePageSize) : 0;
}

ResidencySet* Device::newResidencySet(const ResidencySetDescriptor* /*desc*/,
                                      NS::Error** /*error*/) {
  return this ? new mtlqwen::hostmetal::HostResidencySet : nullptr;
}

}  // namespace MTL
