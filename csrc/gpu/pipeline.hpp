// Compiled kernels, built once for each (name, function constants) and kept.
#pragma once
#include <Metal/Metal.hpp>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace mtlqwen {

// One function constant: its index in the MSL source and its value.
struct Constant {
  uint32_t index = 0;
  std::variant<bool, int32_t, uint32_t, float> value;
  auto operator<=>(const Constant&) const = default;
};
using Constants = std::vector<Constant>;  // in any order, each index once

struct Pipeline {
  NS::SharedPtr<MTL::ComputePipelineState> state;
  std::string name;
  uint32_t max_threads = 0;  // of one threadgroup
};

// Not thread safe. A Pipeline stays where it is for the life of the cache.
class Pipelines {
 public:
  // Throws DeviceError: file missing, wrong machine.
  Pipelines(MTL::Device* device, const std::string& library_path);
  // Throws DeviceError naming the kernel: unknown, a constant it needs not given, compilation
  // failed.
  const Pipeline& get(std::string_view kernel, const Constants& constants = {});
  [[nodiscard]] std::vector<std::string> kernel_names() const;
  [[nodiscard]] size_t n_built() const { return built_.size(); }

 private:
  [[nodiscard]] Pipeline build(const std::string& kernel, const Constants& constants);

  NS::SharedPtr<MTL::Device> device_;
  NS::SharedPtr<MTL::Library> library_;
  NS::SharedPtr<MTL4::Compiler> compiler_;
  std::map<std::pair<std::string, Constants>, std::unique_ptr<Pipeline>> built_;
};

}  // namespace mtlqwen
