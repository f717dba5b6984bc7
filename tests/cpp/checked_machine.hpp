// A software device under MTLQWEN_HOST_CHECK, with numbers in two buffers and a kernel that moves them.
#pragma once
#include <cstdlib>
#include <string>

#include "check.hpp"
#include "host_machine.hpp"

namespace mtlqwen::testing {

// Buffers lie at the start of their pages for one half of the seeds, at the end for the other.
inline constexpr uint64_t kSeeds = 8;

// Variables of the environment while it lives.
class Environment {
 public:
  explicit Environment(const char* checks, const std::string& seed = "1") {
    setenv("MTLQWEN_HOST_CHECK", checks, 1);
    setenv("MTLQWEN_HOST_SEED", seed.c_str(), 1);
  }
  ~Environment() {
    unsetenv("MTLQWEN_HOST_CHECK");
    unsetenv("MTLQWEN_HOST_SEED");
  }
  Environment(const Environment&) = delete;
  Environment& operator=(const Environment&) = delete;
};

inline void check_contains(const std::string& text, const std::string& part,
                           const Location& at = Location::current()) {
  if (!contains(text, part)) fail("\"" + text + "\" lacks \"" + part + "\"", at);
}

struct Numbers {
  explicit Numbers(const char* checks, uint64_t seed = 1)
      : environment(checks, std::to_string(seed)) {}

  static constexpr uint64_t kBytes = 128;
  Environment environment;
  Machine machine;
  NS::SharedPtr<MTL::ComputePipelineState> copy = machine.pipeline("copy_word");
  NS::SharedPtr<MTL::Buffer> in = machine.buffer(kBytes, "in");
  NS::SharedPtr<MTL::Buffer> out = machine.buffer(kBytes, "out");
};

}  // namespace mtlqwen::testing
