// Kernel libraries, functions, pipelines.
#pragma once
#include <Metal/Metal.hpp>
#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "hostmetal/device.hpp"
#include "hostmetal/msl/abi.h"

namespace mtlqwen::hostmetal {

class HostLibrary final : public MTL::Library {
 public:
  // `table` lives as long as the process.
  HostLibrary(HostDevice& device, const MslLibrary* table, std::string_view path);

  [[nodiscard]] const MslKernel* find(std::string_view name) const;  // null where unknown

  const NS::SharedPtr<HostDevice> device;
  const MslLibrary* const table;
  const std::string path;
};

class HostFunction final : public MTL::Function {
 public:
  HostFunction(HostLibrary& owner, const MslKernel& kernel);

  const NS::SharedPtr<HostLibrary> library;
  const NS::SharedPtr<NS::String> name;
};

using ConstantBits = std::array<uint64_t, MSL_MAX_CONSTANTS>;

// A kernel and the values of its function constants. Immutable.
class HostPipeline final : public MTL::ComputePipelineState {
 public:
  HostPipeline(const HostLibrary& owner, const MslKernel& the_kernel, const ConstantBits& values)
      : device(owner.device), library(owner.table), kernel(&the_kernel), constants(values) {}

  const NS::SharedPtr<HostDevice> device;
  const MslLibrary* const library;
  const MslKernel* const kernel;
  const ConstantBits constants;
  NS::SharedPtr<NS::String> label;
};

[[nodiscard]] inline HostLibrary* host(MTL::Library* library) {
  return static_cast<HostLibrary*>(library);
}
[[nodiscard]] inline const HostLibrary* host(const MTL::Library* library) {
  return static_cast<const HostLibrary*>(library);
}
[[nodiscard]] inline const HostPipeline* host(const MTL::ComputePipelineState* state) {
  return static_cast<const HostPipeline*>(state);
}

}  // namespace mtlqwen::hostmetal
