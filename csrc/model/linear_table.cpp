#include "model/linear_table.hpp"

#include <algorithm>
#include <array>

#include "base/error.hpp"
#include "base/types.hpp"

namespace mtlqwen {
namespace {

constexpr uint32_t kSimdWidth = 32;
constexpr uint32_t kLinearK = 32;             // every kernel takes multiples of it, or of a qblock
constexpr uint32_t kTileOutputs = 32;         // of a simdgroup of a tile kernel
constexpr uint32_t kTileBytes = 32 * 36 * 4;  // of its threadgroup memory
constexpr uint32_t kTileSimdgroups = 2;
constexpr uint32_t kMlpOutputs = 32;  // the elements of an int16 row that share a scale

// Kernel names of one format.
struct Names {
  std::array<std::string_view, 4> whole;  // 1, 2, 4, 8 rows
  std::array<std::string_view, 3> split;  // 1, 2, 4 rows
  std::array<std::string_view, 3> tile;   // 8, 16, 32 rows
};

// Software: a thread of a `whole` kernel sums 8, 4, 4 or 2 outputs; groups have 64 outputs, so
// that many cores find work in small layers (any size is as fast on one). No tiles: Q8_0, k = 512,
// n = 3072 on one Zen 5 core with AVX-512: 25, 32, 49, 57 GMAC/s at 1, 2, 4, 8 rows and 57
// at 128, where tiles give 3.
using SoftwareTable = std::array<LinearLaunch, 4>;
constexpr SoftwareTable software_table(const Names& names) {
  return {{
      {names.whole[0], 1, 1, 8 * 8, 8},
      {names.whole[1], 2, 2, 4 * 16, 16},
      {names.whole[2], 4, 4, 4 * 16, 16},
      {names.whole[3], kPassRows, 8, 2 * 32, 32},
  }};
}

constexpr LinearLaunch tile(std::string_view name, uint32_t max_rows, uint32_t rows) {
  return {name,
          max_rows,
          rows,
          kTileOutputs * kTileSimdgroups,
          kSimdWidth * kTileSimdgroups,
          kTileBytes * kTileSimdgroups};
}

// Software with int16 rows: one row streams the weights by; from two rows on a panel of weights is
// unpacked once. Zen 5 with AVX-512 and VNNI, k = 1024, n = 3584 from memory, two threads: 8 rows
// take 1.3 times as long as one where memory gives 41 GB/s, 1.9 times where it gives 74.
struct Int16Table {
  std::array<LinearLaunch, 2> linear;
  std::array<LinearLaunch, 2> mlp;
};
constexpr LinearLaunch int16(std::string_view name, uint32_t rows, uint32_t outputs) {
  return {.kernel = name,
          .max_rows = rows,
          .rows_per_group = rows,
          .outputs_per_group = outputs,
          .threads = kSimdWidth,
          .own_bits = rows == 1,
          .int16 = true};
}

// GPU: a simdgroup of a `split` kernel sums 4, 4 or 2 outputs. Tiles from 5 rows on, as other
// engines on Apple GPUs measured (ggml-org/llama.cpp#25377).
using GpuTable = std::array<LinearLaunch, 6>;
constexpr GpuTable gpu_table(const Names& names) {
  return {{
      {names.split[0], 1, 1, 4, kSimdWidth, 0, true},
      {names.split[1], 2, 2, 4, kSimdWidth, 0, true},
      {names.split[2], 4, 4, 2, kSimdWidth, 0, true},
      tile(names.tile[0], 8, 8),
      tile(names.tile[1], 16, 16),
      tile(names.tile[2], kPassRows, 32),
  }};
}

constexpr Names kF32{
    {"linear_f32_decode_whole_1", "linear_f32_decode_whole_2", "linear_f32_decode_whole_4",
     "linear_f32_decode_whole_8"},
    {"linear_f32_decode_split_1", "linear_f32_decode_split_2", "linear_f32_decode_split_4"},
    {"linear_f32_tile_8", "linear_f32_tile_16", "linear_f32_tile_32"}};
constexpr Names kF16{
    {"linear_f16_decode_whole_1", "linear_f16_decode_whole_2", "linear_f16_decode_whole_4",
     "linear_f16_decode_whole_8"},
    {"linear_f16_decode_split_1", "linear_f16_decode_split_2", "linear_f16_decode_split_4"},
    {"linear_f16_tile_8", "linear_f16_tile_16", "linear_f16_tile_32"}};
constexpr Names kBF16{
    {"linear_bf16_decode_whole_1", "linear_bf16_decode_whole_2", "linear_bf16_decode_whole_4",
     "linear_bf16_decode_whole_8"},
    {"linear_bf16_decode_split_1", "linear_bf16_decode_split_2", "linear_bf16_decode_split_4"},
    {"linear_bf16_tile_8", "linear_bf16_tile_16", "linear_bf16_tile_32"}};
constexpr Names kQ8_0{
    {"linear_q8_0_decode_whole_1", "linear_q8_0_decode_whole_2", "linear_q8_0_decode_whole_4",
     "linear_q8_0_decode_whole_8"},
    {"linear_q8_0_decode_split_1", "linear_q8_0_decode_split_2", "linear_q8_0_decode_split_4"},
    {"linear_q8_0_tile_8", "linear_q8_0_tile_16", "linear_q8_0_tile_32"}};

constexpr Names kPacked{{},
                        {"linear_packed_decode_split_1", "linear_packed_decode_split_2",
                         "linear_packed_decode_split_4"},
                        {"linear_packed_tile_8", "linear_packed_tile_16", "linear_packed_tile_32"}};

// By value of Format; the last one is for packed formats.
constexpr std::array kSoftware{software_table(kF32), software_table(kF16), software_table(kBF16),
                               software_table(kQ8_0)};
constexpr std::array kGpu{gpu_table(kF32), gpu_table(kF16), gpu_table(kBF16), gpu_table(kQ8_0),
                          gpu_table(kPacked)};
// Weights are unpacked once for all rows: it is as slow for one row as for few.
constexpr std::array kSoftwarePacked{
    LinearLaunch{"linear_packed_whole", kPassRows, kPassRows, 64, kSimdWidth}};
constexpr Int16Table int16_table(std::string_view linear_row, std::string_view linear_panel,
                                 std::string_view mlp_row, std::string_view mlp_panel) {
  return {{{int16(linear_row, 1, 64), int16(linear_panel, kPassRows, 32)}},
          {{int16(mlp_row, 1, kMlpOutputs), int16(mlp_panel, kPassRows, kMlpOutputs)}}};
}
constexpr Int16Table kInt16Q8_0 = int16_table("linear_q8_0_int16_row", "linear_q8_0_int16_panel",
                                              "mlp_q8_0_int16_row", "mlp_q8_0_int16_panel");
constexpr Int16Table kInt16Packed =
    int16_table("linear_packed_int16_row", "linear_packed_int16_panel", "mlp_packed_int16_row",
                "mlp_packed_int16_panel");
static_assert(static_cast<uint32_t>(Format::kF32) == 0 && static_cast<uint32_t>(Format::kF16) == 1);
static_assert(static_cast<uint32_t>(Format::kBF16) == 2 &&
              static_cast<uint32_t>(Format::kQ8_0) == 3);

const Int16Table* int16_table(Format format, LinearDevice device) {
  if (!device.int16 || !device.software || format < Format::kQ8_0) return nullptr;
  return info(format).is_packed() ? &kInt16Packed : &kInt16Q8_0;
}

// The first that is wide enough, else the last.
const LinearLaunch& choose(std::span<const LinearLaunch> launches, uint32_t rows,
                           LinearDevice device) {
  const auto fits = [&](const LinearLaunch& launch) {
    return rows <= launch.max_rows && !(device.deterministic && launch.own_bits);
  };
  const auto found = std::find_if(launches.begin(), launches.end(), fits);
  return found == launches.end() ? launches.back() : *found;
}

void check_shape(Format format, uint32_t n, uint32_t k) {
  const uint32_t step = std::max(kLinearK, info(format).qblock_elements);
  if (k == 0 || k % step != 0 || n == 0) {
    throw ModelError(concat("[model] linear layer: shape unsupported (got ", n, " x ", k, " of ",
                            info(format).name, ", want columns in multiples of ", step,
                            "); use another model"));
  }
}

}  // namespace

Constants LinearLaunch::constants() const {
  return {{.index = kSimdgroupsConstant, .value = std::max(threads / kSimdWidth, 1U)}};
}

Constants format_constants(Format format, uint32_t index) {
  return {{.index = index, .value = info(format).gguf_type}};
}

std::span<const LinearLaunch> linear_launches(Format format, LinearDevice device) {
  if (const Int16Table* table = int16_table(format, device)) return table->linear;
  const bool packed = info(format).is_packed();
  const auto index = static_cast<size_t>(format);
  if (!device.software) return packed ? kGpu.back() : kGpu.at(index);
  if (packed) return kSoftwarePacked;
  return kSoftware.at(index);
}

const LinearLaunch& choose_linear(Format format, uint32_t n, uint32_t k, uint32_t rows,
                                  LinearDevice device) {
  check_shape(format, n, k);
  return choose(linear_launches(format, device), rows, device);
}

const LinearLaunch* choose_mlp(Format gate, Format up, uint32_t n, uint32_t k, uint32_t rows,
                               LinearDevice device) {
  check_shape(gate, n, k);
  check_shape(up, n, k);
  const Int16Table* table = int16_table(gate, device);
  if (!table || table != int16_table(up, device) || n % kMlpOutputs != 0) return nullptr;
  return &choose(table->mlp, rows, device);
}

}  // namespace mtlqwen
