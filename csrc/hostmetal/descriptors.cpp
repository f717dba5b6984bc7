// Descriptors of Metal 4: they hold what they are told.
#include <Metal/Metal.hpp>

#include "hostmetal/error.hpp"

namespace MTL4 {

using mtlqwen::hostmetal::keep;

LibraryFunctionDescriptor* LibraryFunctionDescriptor::alloc() {
  return new LibraryFunctionDescriptor;
}
LibraryFunctionDescriptor* LibraryFunctionDescriptor::init() { return this; }
MTL::Library* LibraryFunctionDescriptor::library() const { return this ? library_.get() : nullptr; }
NS::String* LibraryFunctionDescriptor::name() const { return this ? name_.get() : nullptr; }

void LibraryFunctionDescriptor::setLibrary(const MTL::Library* library) {
  if (this) library_ = keep(library);
}

void LibraryFunctionDescriptor::setName(const NS::String* name) {
  if (this) name_ = keep(name);
}

SpecializedFunctionDescriptor* SpecializedFunctionDescriptor::alloc() {
  return new SpecializedFunctionDescriptor;
}
SpecializedFunctionDescriptor* SpecializedFunctionDescriptor::init() { return this; }
FunctionDescriptor* SpecializedFunctionDescriptor::functionDescriptor() const {
  return this ? function_.get() : nullptr;
}
MTL::FunctionConstantValues* SpecializedFunctionDescriptor::constantValues() const {
  return this ? constants_.get() : nullptr;
}

void SpecializedFunctionDescriptor::setFunctionDescriptor(
    const FunctionDescriptor* functionDescriptor) {
  if (this) function_ = keep(functionDescriptor);
}

void SpecializedFunctionDescriptor::setConstantValues(
    const MTL::FunctionConstantValues* constantValues) {
  if (this) constants_ = keep(constantValues);
}

NS::String* PipelineDescriptor::label() const { return this ? label_.get() : nullptr; }

void PipelineDescriptor::setLabel(const NS::String* label) {
  if (this) label_ = keep(label);
}

ComputePipelineDescriptor* ComputePipelineDescriptor::alloc() {
  return new ComputePipelineDescriptor;
}
ComputePipelineDescriptor* ComputePipelineDescriptor::init() { return this; }
FunctionDescriptor* ComputePipelineDescriptor::computeFunctionDescriptor() const {
  return this ? function_.get() : nullptr;
}

void ComputePipelineDescriptor::setComputeFunctionDescriptor(
    const FunctionDescriptor* computeFunctionDescriptor) {
  if (this) function_ = keep(computeFunctionDescriptor);
}

CompilerDescriptor* CompilerDescriptor::alloc() { return new CompilerDescriptor; }
CompilerDescriptor* CompilerDescriptor::init() { return this; }
ArgumentTableDescriptor* ArgumentTableDescriptor::alloc() { return new ArgumentTableDescriptor; }
ArgumentTableDescriptor* ArgumentTableDescriptor::init() { return this; }
NS::UInteger ArgumentTableDescriptor::maxBufferBindCount() const { return this ? max_buffers_ : 0; }

void ArgumentTableDescriptor::setMaxBufferBindCount(NS::UInteger maxBufferBindCount) {
  if (this) max_buffers_ = maxBufferBindCount;
}

}  // namespace MTL4
