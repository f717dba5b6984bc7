// Descriptions of functions and pipelines, and the compiler that turns them into pipeline states.
#pragma once
#include "MTLLibrary.hpp"
#include "MTLTypes.hpp"

namespace MTL4 {

class FunctionDescriptor : public NS::Copying<FunctionDescriptor> {
 protected:
  FunctionDescriptor() = default;
};

class LibraryFunctionDescriptor
    : public NS::Copying<LibraryFunctionDescriptor, FunctionDescriptor> {
 public:
  static LibraryFunctionDescriptor* alloc();
  LibraryFunctionDescriptor* init();

  [[nodiscard]] MTL::Library* library() const;
  void setLibrary(const MTL::Library* library);
  [[nodiscard]] NS::String* name() const;
  void setName(const NS::String* name);

 private:
  LibraryFunctionDescriptor() = default;
  NS::SharedPtr<MTL::Library> library_;
  NS::SharedPtr<NS::String> name_;
};

class SpecializedFunctionDescriptor
    : public NS::Copying<SpecializedFunctionDescriptor, FunctionDescriptor> {
 public:
  static SpecializedFunctionDescriptor* alloc();
  SpecializedFunctionDescriptor* init();

  [[nodiscard]] FunctionDescriptor* functionDescriptor() const;
  void setFunctionDescriptor(const MTL4::FunctionDescriptor* functionDescriptor);
  [[nodiscard]] MTL::FunctionConstantValues* constantValues() const;
  void setConstantValues(const MTL::FunctionConstantValues* constantValues);

 private:
  SpecializedFunctionDescriptor() = default;
  NS::SharedPtr<FunctionDescriptor> function_;
  NS::SharedPtr<MTL::FunctionConstantValues> constants_;
};

class PipelineDescriptor : public NS::Copying<PipelineDescriptor> {
 public:
  [[nodiscard]] NS::String* label() const;
  void setLabel(const NS::String* label);

 protected:
  PipelineDescriptor() = default;

 private:
  NS::SharedPtr<NS::String> label_;
};

class ComputePipelineDescriptor
    : public NS::Copying<ComputePipelineDescriptor, PipelineDescriptor> {
 public:
  static ComputePipelineDescriptor* alloc();
  ComputePipelineDescriptor* init();

  [[nodiscard]] FunctionDescriptor* computeFunctionDescriptor() const;
  void setComputeFunctionDescriptor(const MTL4::FunctionDescriptor* computeFunctionDescriptor);

 private:
  ComputePipelineDescriptor() = default;
  NS::SharedPtr<FunctionDescriptor> function_;
};

class CompilerDescriptor : public NS::Copying<CompilerDescriptor> {
 public:
  static CompilerDescriptor* alloc();
  CompilerDescriptor* init();

 private:
  CompilerDescriptor() = default;
};

class CompilerTaskOptions;

class Compiler : public NS::Referencing<Compiler> {
 public:
  // Fails, naming the function, where the library lacks it, a constant that it needs has no value, or one has a value of
  // another type. `compilerTaskOptions` is null here: nothing is compiled at run time.
  MTL::ComputePipelineState*
  newComputePipelineState(const MTL4::ComputePipelineDescriptor* descriptor,
                          const MTL4::CompilerTaskOptions* compilerTaskOptions, NS::Error** error);

 protected:
  Compiler() = default;
};

}  // namespace MTL4
