#include "gpu/pipeline.hpp"

#include <algorithm>
#include <string>
#include <type_traits>
#include <utility>

#include "base/error.hpp"
#include "gpu/foundation.hpp"

namespace mtlqwen {
namespace {

// Equal sets of constants are equal keys.
Constants canonical(Constants constants) {
  std::sort(constants.begin(), constants.end());
  return constants;
}

template <class T>
constexpr MTL::DataType data_type() {
  if constexpr (std::is_same_v<T, bool>) return MTL::DataTypeBool;
  if constexpr (std::is_same_v<T, int32_t>) return MTL::DataTypeInt;
  if constexpr (std::is_same_v<T, uint32_t>) return MTL::DataTypeUInt;
  return MTL::DataTypeFloat;
}

NS::SharedPtr<MTL::FunctionConstantValues> constant_values(const Constants& constants) {
  auto values = NS::TransferPtr(MTL::FunctionConstantValues::alloc()->init());
  for (const Constant& constant : constants) {
    std::visit(
        [&](const auto& value) {
          values->setConstantValue(&value, data_type<std::decay_t<decltype(value)>>(),
                                   NS::UInteger{constant.index});
        },
        constant.value);
  }
  return values;
}

}  // namespace

Pipelines::Pipelines(MTL::Device* device, const std::string& library_path)
    : device_(NS::RetainPtr(device)) {
  const AutoreleaseScope scope;
  NS::Error* error = nullptr;
  const NS::URL* url = NS::URL::fileURLWithPath(ns_string(library_path));
  library_ = NS::TransferPtr(device->newLibrary(url, &error));
  if (!library_) {
    throw DeviceError(concat("[gpu] ", library_path, ": no usable kernel library (", to_text(error),
                             "); reinstall mtlqwen"));
  }
  const auto descriptor = NS::TransferPtr(MTL4::CompilerDescriptor::alloc()->init());
  error = nullptr;
  compiler_ = NS::TransferPtr(device->newCompiler(descriptor.get(), &error));
  if (!compiler_) {
    throw DeviceError(concat("[gpu] kernel compiler: not available (", to_text(error),
                             "); Metal 4 on macOS 26 or later is needed"));
  }
}

const Pipeline& Pipelines::get(std::string_view kernel, const Constants& constants) {
  std::pair<std::string, Constants> key(kernel, canonical(constants));
  const auto found = built_.find(key);
  if (found != built_.end()) return *found->second;
  auto pipeline = std::make_unique<Pipeline>(build(key.first, key.second));
  return *built_.emplace(std::move(key), std::move(pipeline)).first->second;
}

Pipeline Pipelines::build(const std::string& kernel, const Constants& constants) {
  const AutoreleaseScope scope;
  const auto function = NS::TransferPtr(MTL4::LibraryFunctionDescriptor::alloc()->init());
  function->setLibrary(library_.get());
  function->setName(ns_string(kernel));
  const auto specialized = NS::TransferPtr(MTL4::SpecializedFunctionDescriptor::alloc()->init());
  specialized->setFunctionDescriptor(function.get());
  const auto values = constant_values(constants);
  specialized->setConstantValues(values.get());
  const auto descriptor = NS::TransferPtr(MTL4::ComputePipelineDescriptor::alloc()->init());
  descriptor->setLabel(ns_string(kernel));
  descriptor->setComputeFunctionDescriptor(specialized.get());

  NS::Error* error = nullptr;
  auto state =
      NS::TransferPtr(compiler_->newComputePipelineState(descriptor.get(), nullptr, &error));
  if (!state) {
    throw DeviceError(concat("[gpu] kernel ", kernel, ": no pipeline (", to_text(error),
                             "); kernel library and program do not match, reinstall mtlqwen"));
  }
  const auto max_threads = static_cast<uint32_t>(state->maxTotalThreadsPerThreadgroup());
  return {.state = std::move(state), .name = kernel, .max_threads = max_threads};
}

std::vector<std::string> Pipelines::kernel_names() const {
  const AutoreleaseScope scope;
  std::vector<std::string> names;
  const NS::Array* functions = library_->functionNames();
  for (NS::UInteger i = 0; i < functions->count(); ++i) {
    names.push_back(to_text(functions->object<NS::String>(i)));
  }
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace mtlqwen
