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
NS::String* SpecializedFunctionDescriptor::specializedName() const {
  return this ? name_.get() : nullptr;
}

void SpecializedFunctionDescriptor::setFunctionDescriptor(
    const FunctionDescriptor* functionDescriptor) {
  if (this) function_ = keep(functionDescriptor);
}

void SpecializedFunctionDescriptor::setConstantValues(
    const MTL::FunctionConstantValues* constantValues) {
  if (this) constants_ = keep(constantValues);
}

void SpecializedFunctionDescriptor::setSpecializedName(const NS::String* specializedName) {
  if (this) name_ = keep(specializedName);
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
NS::UInteger ComputePipelineDescriptor::maxTotalThreadsPerThreadgroup() const {
  return this ? max_threads_ : 0;
}
bool ComputePipelineDescriptor::threadGroupSizeIsMultipleOfThreadExecutionWidth() const {
  return this && whole_simdgroups_;
}

void ComputePipelineDescriptor::setComputeFunctionDescriptor(
    const FunctionDescriptor* computeFunctionDescriptor) {
  if (this) function_ = keep(computeFunctionDescriptor);
}

void ComputePipelineDescriptor::setMaxTotalThreadsPerThreadgroup(
    NS::UInteger maxTotalThreadsPerThreadgroup) {
  if (this) max_threads_ = maxTotalThreadsPerThreadgroup;
}

void ComputePipelineDescriptor::setThreadGroupSizeIsMultipleOfThreadExecutionWidth(
    bool threadGroupSizeIsMultipleOfThreadExecutionWidth) {
  if (this) whole_simdgroups_ = threadGroupSizeIsMultipleOfThreadExecutionWidth;
}

CompilerDescriptor* CompilerDescriptor::alloc() { return new CompilerDescriptor; }
CompilerDescriptor* CompilerDescriptor::init() { return this; }
NS::String* CompilerDescriptor::label() const { return this ? label_.get() : nullptr; }

void CompilerDescriptor::setLabel(const NS::String* label) {
  if (this) label_ = keep(label);
}

ArgumentTableDescriptor* ArgumentTableDescriptor::alloc() { return new ArgumentTableDescriptor; }
ArgumentTableDescriptor* ArgumentTableDescriptor::init() { return this; }
NS::String* ArgumentTableDescriptor::label() const { return this ? label_.get() : nullptr; }
bool ArgumentTableDescriptor::initializeBindings() const { return this && initialize_; }
NS::UInteger ArgumentTableDescriptor::maxBufferBindCount() const { return this ? max_buffers_ : 0; }

void ArgumentTableDescriptor::setLabel(const NS::String* label) {
  if (this) label_ = keep(label);
}

void ArgumentTableDescriptor::setInitializeBindings(bool initializeBindings) {
  if (this) initialize_ = initializeBindings;
}

void ArgumentTableDescriptor::setMaxBufferBindCount(NS::UInteger maxBufferBindCount) {
  if (this) max_buffers_ = maxBufferBindCount;
}

}  // namespace MTL4
