#include "hostmetal/library.hpp"

#include <algorithm>
#include <cstring>
#include <vector>

#include "base/error.hpp"
#include "hostmetal/error.hpp"

namespace mtlqwen::hostmetal {

HostLibrary::HostLibrary(HostDevice& host_device, const MslLibrary* kernels,
                         std::string_view its_path)
    : device(NS::RetainPtr(&host_device)), table(kernels), path(its_path) {}

const MslKernel* HostLibrary::find(std::string_view name) const {
  const MslKernel* end = table->kernels + table->n_kernels;
  const MslKernel* found = std::find_if(
      table->kernels, end, [name](const MslKernel& kernel) { return kernel.name == name; });
  return found == end ? nullptr : found;
}

HostFunction::HostFunction(HostLibrary& owner, const MslKernel& kernel)
    : library(NS::RetainPtr(&owner)), name(make_string(kernel.name)) {}

namespace {

uint64_t size_of(MTL::DataType type) {
  switch (type) {
  case MTL::DataTypeBool:
  case MTL::DataTypeChar:
  case MTL::DataTypeUChar:
    return 1;
  case MTL::DataTypeHalf:
  case MTL::DataTypeBFloat:
  case MTL::DataTypeShort:
  case MTL::DataTypeUShort:
    return 2;
  case MTL::DataTypeFloat:
  case MTL::DataTypeInt:
  case MTL::DataTypeUInt:
    return 4;
  case MTL::DataTypeLong:
  case MTL::DataTypeULong:
    return 8;
  }
  return 0;
}

}  // namespace
}  // namespace mtlqwen::hostmetal

namespace MTL {

using mtlqwen::hostmetal::host;

Library* Device::newLibrary(const NS::URL* url, NS::Error** error) {
  using namespace mtlqwen::hostmetal;
  if (!this) return nullptr;
  const char* path = url->fileSystemRepresentation();
  std::string problem = "[hostmetal] kernel library: no path given";
  const MslLibrary* table = nullptr;
  try {
    if (path && *path) table = host(this)->executor().open_library(path, problem);
  } catch (const mtlqwen::DeviceError& no_such_isa) {
    problem = no_such_isa.what();
  }
  if (table) return new HostLibrary(*host(this), table, path);
  report(error, kLibraryDomain, LibraryErrorFileNotFound, problem);
  return nullptr;
}

NS::Array* Library::functionNames() const {
  if (!this) return nullptr;
  const MslLibrary* table = host(this)->table;
  std::vector<NS::SharedPtr<NS::String>> names;
  std::vector<const NS::Object*> objects;
  for (uint32_t i = 0; i < table->n_kernels; ++i) {
    names.push_back(mtlqwen::hostmetal::make_string(table->kernels[i].name));
    objects.push_back(names.back().get());
  }
  return NS::Array::array(objects.data(), objects.size());
}

Function* Library::newFunction(const NS::String* functionName) {
  if (!this) return nullptr;
  const MslKernel* kernel = host(this)->find(mtlqwen::hostmetal::text_of(functionName));
  return kernel ? new mtlqwen::hostmetal::HostFunction(*host(this), *kernel) : nullptr;
}

NS::String* Function::name() const {
  return this ? static_cast<const mtlqwen::hostmetal::HostFunction*>(this)->name.get() : nullptr;
}

FunctionConstantValues* FunctionConstantValues::alloc() { return new FunctionConstantValues; }
FunctionConstantValues* FunctionConstantValues::init() { return this; }

void FunctionConstantValues::setConstantValue(const void* value, DataType type,
                                              NS::UInteger index) {
  if (!this || !value) return;
  Value stored{.type = type};
  std::memcpy(&stored.bits, value, mtlqwen::hostmetal::size_of(type));
  values_[index] = stored;
}

void FunctionConstantValues::reset() {
  if (this) values_.clear();
}

NS::String* ComputePipelineState::label() const { return this ? host(this)->label.get() : nullptr; }

NS::UInteger ComputePipelineState::maxTotalThreadsPerThreadgroup() const {
  return this ? MSL_MAX_THREADS : 0;
}

NS::UInteger ComputePipelineState::threadExecutionWidth() const { return this ? 32 : 0; }

}  // namespace MTL
