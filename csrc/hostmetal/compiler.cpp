// The compiler: it finds kernels and binds constants, for all compilation was done when the library was built.
#include <Metal/Metal.hpp>
#include <optional>
#include <string>

#include "base/error.hpp"
#include "hostmetal/error.hpp"
#include "hostmetal/library.hpp"

namespace mtlqwen::hostmetal {

class HostCompiler final : public MTL4::Compiler {
 public:
  explicit HostCompiler(HostDevice& owner) : device(NS::RetainPtr(&owner)) {}
  const NS::SharedPtr<HostDevice> device;
};

struct ConstantsReader {
  using Value = MTL::FunctionConstantValues::Value;
  static const Value* find(const MTL::FunctionConstantValues* values, uint32_t index) {
    if (!values) return nullptr;
    const auto found = values->values_.find(index);
    return found == values->values_.end() ? nullptr : &found->second;
  }
};

namespace {

// What a descriptor asks for.
struct Wanted {
  const MTL4::LibraryFunctionDescriptor* function = nullptr;
  const MTL::FunctionConstantValues* constants = nullptr;
};

Wanted read_descriptor(const MTL4::ComputePipelineDescriptor* descriptor) {
  Wanted wanted;
  const MTL4::FunctionDescriptor* function = descriptor->computeFunctionDescriptor();
  if (const auto* special = dynamic_cast<const MTL4::SpecializedFunctionDescriptor*>(function)) {
    wanted.constants = special->constantValues();
    function = special->functionDescriptor();
  }
  wanted.function = dynamic_cast<const MTL4::LibraryFunctionDescriptor*>(function);
  return wanted;
}

const char* type_name(uint32_t type) {
  switch (type) {
  case MTL::DataTypeFloat:
    return "float";
  case MTL::DataTypeHalf:
    return "half";
  case MTL::DataTypeBFloat:
    return "bfloat";
  case MTL::DataTypeInt:
    return "int";
  case MTL::DataTypeUInt:
    return "uint";
  case MTL::DataTypeBool:
    return "bool";
  default:
    return "another type";
  }
}

// The values that a kernel reads; nothing, and a sentence, where one is missing or of the wrong type.
std::optional<ConstantBits> bind_constants(const MslKernel& kernel,
                                           const MTL::FunctionConstantValues* values,
                                           std::string& problem) {
  ConstantBits bits{};
  for (uint32_t i = 0; i < kernel.n_constants; ++i) {
    const MslConstant& constant = kernel.constants[i];
    const auto* value = ConstantsReader::find(values, constant.index);
    const std::string subject = concat("[hostmetal] kernel ", kernel.name, ": function constant ",
                                       constant.index, " (", constant.name, ")");
    if (!value) {
      problem = concat(subject, " has no value (want a ", type_name(constant.data_type), ")");
      return std::nullopt;
    }
    if (value->type != constant.data_type) {
      problem = concat(subject, " has a value of the wrong type (got ",
                       type_name(static_cast<uint32_t>(value->type)), ", want ",
                       type_name(constant.data_type), ")");
      return std::nullopt;
    }
    bits[constant.index] = value->bits;
  }
  return bits;
}

MTL::ComputePipelineState* make_pipeline(const MTL4::ComputePipelineDescriptor* descriptor,
                                         std::string& problem) {
  const Wanted wanted = read_descriptor(descriptor);
  const auto* library = static_cast<const HostLibrary*>(wanted.function->library());
  if (!library) {
    problem = "[hostmetal] pipeline: the descriptor names no function of a library";
    return nullptr;
  }
  const std::string name = text_of(wanted.function->name());
  const MslKernel* kernel = library->find(name);
  if (!kernel) {
    problem = concat("[hostmetal] kernel ", name, ": not in the library ", library->path);
    return nullptr;
  }
  const auto constants = bind_constants(*kernel, wanted.constants, problem);
  if (!constants) return nullptr;
  auto* pipeline = new HostPipeline(*library, *kernel, *constants);
  pipeline->label = keep<NS::String>(descriptor->label());
  return pipeline;
}

}  // namespace
}  // namespace mtlqwen::hostmetal

namespace MTL {

MTL4::Compiler* Device::newCompiler(const MTL4::CompilerDescriptor* /*descriptor*/,
                                    NS::Error** /*error*/) {
  using namespace mtlqwen::hostmetal;
  return this ? new HostCompiler(*host(this)) : nullptr;
}

}  // namespace MTL

namespace MTL4 {

MTL::ComputePipelineState*
Compiler::newComputePipelineState(const ComputePipelineDescriptor* descriptor,
                                  const CompilerTaskOptions* /*options*/, NS::Error** error) {
  using namespace mtlqwen::hostmetal;
  if (!this) return nullptr;
  std::string problem;
  MTL::ComputePipelineState* state = make_pipeline(descriptor, problem);
  if (!state) report(error, kLibraryDomain, MTL::LibraryErrorCompileFailure, problem);
  return state;
}

}  // namespace MTL4
