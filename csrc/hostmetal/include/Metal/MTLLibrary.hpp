// Compiled kernels: a library of functions, the constants that specialise them, the pipelines made of them.
#pragma once
#include <array>
#include <cstdint>
#include <map>

#include "MTLResource.hpp"
#include "MTLTypes.hpp"

namespace mtlqwen::hostmetal {
struct ConstantsReader;
}

namespace MTL {

class Function : public NS::Referencing<Function> {
 public:
  [[nodiscard]] NS::String* name() const;

 protected:
  Function() = default;
};

class Library : public NS::Referencing<Library> {
 public:
  [[nodiscard]] NS::Array* functionNames() const;
  Function* newFunction(const NS::String* functionName);  // null where unknown

 protected:
  Library() = default;
};

// Values are copied when set, and again into the pipeline.
class FunctionConstantValues : public NS::Copying<FunctionConstantValues> {
 public:
  static FunctionConstantValues* alloc();
  FunctionConstantValues* init();

  void setConstantValue(const void* value, MTL::DataType type, NS::UInteger index);
  void reset();

 private:
  friend struct mtlqwen::hostmetal::ConstantsReader;
  FunctionConstantValues() = default;

  struct Value {
    DataType type{};
    uint64_t bits = 0;  // the value in the low bytes
  };
  std::map<NS::UInteger, Value> values_;
};

class ComputePipelineState : public NS::Referencing<ComputePipelineState, Allocation> {
 public:
  [[nodiscard]] NS::String* label() const;
  [[nodiscard]] NS::UInteger maxTotalThreadsPerThreadgroup() const;
  [[nodiscard]] NS::UInteger threadExecutionWidth() const;

 protected:
  ComputePipelineState() = default;
};

}  // namespace MTL
