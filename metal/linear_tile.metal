// out[row][n] (+)= sum_k in[row][k] * weight[n][k] for many rows, by 8x8 fragments of
// simdgroup_matrix, all float. in (rows, k) and out (rows, n) float, weight (n, k) in the format of
// the name; k a multiple of 32, n and rows any.
//
// A simdgroup computes 8 * kRowTiles rows x 32 outputs. It unpacks 32 outputs x 32 elements of k
// into its own part of the threadgroup memory (4608 bytes), and each fragment of it serves all row
// tiles; simdgroups do not wait for each other. Grid (n / 32 / kSimdgroups, rows / 8 / kRowTiles)
// rounded up, 32 * kSimdgroups threads. A row's result does not depend on the other rows: an output
// is one chain of fragment products in the order of k.
#include "kernel_args.h"
#include "packed.h"
#include "tile.h"

constant uint kSimdgroups [[function_constant(0)]];  // of a threadgroup
constant bool kAccumulate [[function_constant(1)]];  // add to out

enum : uint {
  kFragment = 8,
  kTileOutputs = 32,  // of a simdgroup: one for each lane to unpack
  kTileK = 32,
  kTileStride = kTileK + 4,  // floats; not a multiple of 32, so rows start in different banks
  kOutputFragments = kTileOutputs / kFragment,
};

// Unpacks kTileK elements of each of the simdgroup's outputs, one output a lane.
template <typename Format>
static void unpack_tile(threadgroup float* tile, device const uchar* row, uint k, uint lane) {
  threadgroup float* target = tile + lane * kTileStride;
  for (uint i = 0; i < kTileK; i += 16) {
    float4 weights[4];
    Format::unpack16(weights, row, k + i);
    for (uint j = 0; j < 4; j++) *(threadgroup float4*)(target + i + 4 * j) = weights[j];
  }
}

template <typename Format, uint kRowTiles>
kernel void
linear_tile(device float* out [[buffer(0)]], device const float* in [[buffer(1)]],
            device const uchar* weight [[buffer(2)]], constant LinearArgs& args [[buffer(3)]],
            constant Pass& pass [[buffer(4)]], threadgroup float* tiles [[threadgroup(0)]],
            uint2 group [[threadgroup_position_in_grid]],
            uint simd [[simdgroup_index_in_threadgroup]], uint lane [[thread_index_in_simdgroup]]) {
  const uint first_row = group.y * kRowTiles * kFragment;
  const uint first_output = (group.x * kSimdgroups + simd) * kTileOutputs;
  threadgroup float* tile = tiles + simd * kTileOutputs * kTileStride;
  device const uchar* row =
      weight + min(first_output + lane, args.n - 1) * Format::row_bytes(args.k);

  Fragment sums[kRowTiles][kOutputFragments];
  for (uint r = 0; r < kRowTiles; r++) {
    for (uint o = 0; o < kOutputFragments; o++) {
      sums[r][o] = make_filled_simdgroup_matrix<float, 8, 8>(0.0f);
    }
  }
  for (uint k = 0; k < args.k; k += kTileK) {
    unpack_tile<Format>(tile, row, k, lane);
    simdgroup_barrier(mem_flags::mem_threadgroup);
    for (uint step = 0; step < kTileK; step += kFragment) {
      Fragment weights[kOutputFragments];  // (k, output)
      for (uint o = 0; o < kOutputFragments; o++) {
        simdgroup_load(weights[o], tile + o * kFragment * kTileStride + step, kTileStride,
                       ulong2(0, 0), true);
      }
      for (uint r = 0; r < kRowTiles; r++) {
        const uint row_tile = first_row + r * kFragment;
        Fragment x;  // (row, k)
        load_rows(x, in + min(row_tile, pass.rows) * args.k + k + step, args.k,
                  pass.rows - min(row_tile, pass.rows), lane);
        for (uint o = 0; o < kOutputFragments; o++) {
          simdgroup_multiply_accumulate(sums[r][o], x, weights[o], sums[r][o]);
        }
      }
    }
    simdgroup_barrier(mem_flags::mem_threadgroup);
  }
  for (uint r = 0; r < kRowTiles; r++) {
    const uint row_tile = min(first_row + r * kFragment, pass.rows);
    for (uint o = 0; o < kOutputFragments; o++) {
      const uint output = min(first_output + o * kFragment, args.n);
      store_within(sums[r][o], out + row_tile * args.n + output, args.n, pass.rows - row_tile,
                   args.n - output, kAccumulate, lane);
    }
  }
}

#define MTLQWEN_INSTANCE(NAME, ...)                                                                \
  template                                                                                         \
      [[host_name(NAME)]] [[kernel]] decltype(linear_tile<__VA_ARGS__>) linear_tile<__VA_ARGS__>;
#define MTLQWEN_FORMAT(NAME, FORMAT)                                                               \
  MTLQWEN_INSTANCE("linear_" NAME "_tile_8", FORMAT, 1)                                            \
  MTLQWEN_INSTANCE("linear_" NAME "_tile_16", FORMAT, 2)                                           \
  MTLQWEN_INSTANCE("linear_" NAME "_tile_32", FORMAT, 4)
MTLQWEN_FORMAT("f32", FormatF32)
MTLQWEN_FORMAT("f16", FormatF16)
MTLQWEN_FORMAT("bf16", FormatBF16)
MTLQWEN_FORMAT("q8_0", FormatQ8_0)
MTLQWEN_FORMAT("packed", FormatPacked)
