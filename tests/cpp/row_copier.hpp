// Moves floats through a real kernel (gather_rows), so that tests see memory as kernels see it.
#pragma once
#include <cstring>
#include <span>
#include <vector>

#include "gpu/commands.hpp"
#include "gpu/device.hpp"
#include "kernel_args.h"

namespace mtlqwen::testing {

class RowCopier {
 public:
  explicit RowCopier(Device& device)
      : device_(device), pipeline_(device.pipelines().get("gather_rows")),
        control_(device.new_buffer(kControlBytes, Storage::kShared, "control")) {
    std::memset(control_.contents(), 0, kControlBytes);
  }

  // Encodes n_groups threadgroups that each copy the first `dim` floats of `from` to a row of `to`.
  // The arguments are read when the round runs: all but the last 256 of a round must have one dim.
  void encode(Commands& commands, uint64_t to, uint64_t from, uint32_t dim, uint32_t n_groups = 1) {
    const RowsArgs args{.dim = dim};
    const uint64_t offset = kArgs + kArgsStride * (n_encoded_++ % 256);
    std::memcpy(control_.as<char>() + offset, &args, sizeof(args));
    const uint64_t base = control_.span().address;
    const uint64_t bindings[] = {to, from, base, base + offset, base + kPass};
    commands.dispatch(pipeline_, bindings, {.groups = {1, n_groups, 1}});
  }

  // Stores values at a GPU address, or loads them from there, in a round of its own.
  void store(Commands& commands, uint64_t to, const std::vector<float>& values) {
    Buffer staging = device_.new_buffer(values.size() * sizeof(float), Storage::kShared, "staging");
    std::memcpy(staging.contents(), values.data(), values.size() * sizeof(float));
    run(commands, to, staging.span().address, values.size());
  }
  [[nodiscard]] std::vector<float> load(Commands& commands, uint64_t from, size_t n) {
    Buffer staging = device_.new_buffer(n * sizeof(float), Storage::kShared, "staging");
    run(commands, staging.span().address, from, n);
    return {staging.as<float>(), staging.as<float>() + n};
  }

 private:
  static constexpr uint64_t kArgs = 1 << 20;  // behind the (zero) row indices
  static constexpr uint64_t kArgsStride = 16;
  static constexpr uint64_t kPass = kArgs + 256 * kArgsStride;
  static constexpr uint64_t kControlBytes = kPass + sizeof(Pass);

  void run(Commands& commands, uint64_t to, uint64_t from, size_t n) {
    commands.begin();
    encode(commands, to, from, static_cast<uint32_t>(n));
    commands.commit_and_wait();
  }

  Device& device_;
  const Pipeline& pipeline_;
  Buffer control_;
  uint64_t n_encoded_ = 0;
};

}  // namespace mtlqwen::testing
