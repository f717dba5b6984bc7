// The one table of how linear layers are launched, by format, rows of the pass and kind of device.
#pragma once
#include <cstdint>
#include <span>
#include <string_view>

#include "gpu/pipeline.hpp"
#include "io/format.hpp"

namespace mtlqwen {

// Function constants of metal/linear_*.metal, and of the fused MLP.
inline constexpr uint32_t kSimdgroupsConstant = 0;  // uint
inline constexpr uint32_t kAccumulateConstant = 1;  // bool: add to the output
inline constexpr uint32_t kFormatConstant = 2;      // uint: number in GGUF, of packed weights
inline constexpr uint32_t kUpFormatConstant = 3;    // uint: of the MLP's second matrix

// One kernel of metal/linear_*.metal and its grid: x = outputs / outputs_per_group, y = rows /
// rows_per_group, rounded up.
struct LinearLaunch {
  std::string_view kernel;
  uint32_t max_rows = 0;  // the widest pass that it is chosen for
  uint32_t rows_per_group = 0;
  uint32_t outputs_per_group = 0;
  uint32_t threads = 0;
  uint32_t threadgroup_bytes = 0;
  bool own_bits = false;  // rounds otherwise than the launches of wider passes
  bool int16 = false;     // takes int16 rows (metal/int16.h)

  [[nodiscard]] Constants constants() const;  // all but kAccumulateConstant and the formats
};

struct LinearDevice {
  bool software = false;
  bool deterministic = false;  // the same bits at any number of rows
  bool int16 = false;          // int16 rows where the format has kernels for them; software only
};

// The format's number in GGUF as the constant `index`: packed formats are told apart by it.
[[nodiscard]] Constants format_constants(Format format, uint32_t index = kFormatConstant);

// What serves a format on a GPU, or on a device whose threadgroups run on CPU cores; max_rows
// rises.
[[nodiscard]] std::span<const LinearLaunch> linear_launches(Format format, LinearDevice device);

// The launch for out (rows, n) = in (rows, k) * weight (n, k). A pure function; the result lives
// forever. Throws ModelError where no kernel takes k. Whether it takes int16 rows depends on the
// format and the device alone.
[[nodiscard]] const LinearLaunch& choose_linear(Format format, uint32_t n, uint32_t k,
                                                uint32_t rows, LinearDevice device);

// The launch for int16 rows of silu(gate x) * up x, (rows, n), from int16 rows of k, gate and up (n,
// k) both in Q8_0 or both packed; n a multiple of 32. Null where the formats or the device have none.
[[nodiscard]] const LinearLaunch* choose_mlp(Format gate, Format up, uint32_t n, uint32_t k,
                                             uint32_t rows, LinearDevice device);

}  // namespace mtlqwen
