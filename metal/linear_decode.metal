// out[row][n] (+)= sum_k in[row][k] * weight[n][k] for few rows: a run of weights is unpacked once
// and used for kRows rows. in (rows, k) and out (rows, n) float, weight (n, k) in the format of the
// name; k a multiple of 32, n and rows any. Two ways to share the work:
//
// split: the 32 lanes of a simdgroup split k, neighbours reading neighbouring runs, with one
// simd_sum at the end. For GPUs. Grid (n / kOutputs, rows / kRows) rounded up, 32 threads.
//
// whole: a thread sums whole dot products and waits for nobody. For CPU cores, where waiting is a
// context switch. Grid (n / (threads * kOutputs), rows / kRows) rounded up, any number of threads.
//
// A row's result is the same bit for bit whatever kRows is and whichever rows share the pass: a dot
// product keeps one sum for each element of the vector W and adds to them by fma in the order of k.
#include "kernel_args.h"
#include "packed.h"

constant bool kAccumulate [[function_constant(1)]];  // add to out

enum : uint {
  kSimdWidth = 32,
  // How far ahead of a thread of `whole` its weights are asked for. Its rows lie side by side and
  // are read abreast, which hardware prefetchers do not follow: 3 GB/s from memory without, 12 with.
  kAheadBytes = 16384,
  kLineBytes = 64,
};

// kOutputs outputs of kRows rows, from the first ones on.
// kRun: elements of k that a thread takes at a time.
template <typename Format, bool kSplit, uint kRows, uint kOutputs, typename W, uint kRun>
inline void multiply_block(device float* out, device const float* in, device const uchar* weight,
                           constant LinearArgs& args, uint rows, uint first_row, uint first_output,
                           uint thread_idx) {
  constexpr uint kElements = sizeof(W) / sizeof(float);
  // Rows and outputs past the last one repeat it: nothing outside the arrays is read.
  device const float* x[kRows];
  for (uint r = 0; r < kRows; r++) x[r] = in + min(first_row + r, rows - 1) * args.k;
  device const uchar* row[kOutputs];
  for (uint o = 0; o < kOutputs; o++) {
    row[o] = weight + min(first_output + o, args.n - 1) * Format::row_bytes(args.k);
  }

  W sums[kRows][kOutputs];
#pragma unroll
  for (uint r = 0; r < kRows; r++) {
#pragma unroll
    for (uint o = 0; o < kOutputs; o++) sums[r][o] = W(0.0f);
  }
  for (uint k = kSplit ? thread_idx * kRun : 0; k < args.k;
       k += kSplit ? kSimdWidth * kRun : kRun) {
#pragma unroll
    for (uint o = 0; o < kOutputs; o++) {
      for (uint byte = 0; !kSplit && byte < Format::row_bytes(kRun); byte += kLineBytes) {
        prefetch(row[o] + Format::row_bytes(k) + byte + kAheadBytes);
      }
      W weights[kRun / kElements];
      if constexpr (kSplit) {
        Format::unpack16(weights, row[o], k);
      } else {
#pragma unroll
        for (uint i = 0; i < kRun / kElements; i++) {
          weights[i] = Format::template unpack<W>(row[o], k + i * kElements);
        }
      }
#pragma unroll
      for (uint i = 0; i < kRun / kElements; i++) {
#pragma unroll
        for (uint r = 0; r < kRows; r++) {
          const W values = load_floats<W>(x[r] + k + i * kElements);
          sums[r][o] = multiply_add(weights[i], values, sums[r][o]);
        }
      }
    }
  }
#pragma unroll
  for (uint r = 0; r < kRows; r++) {
#pragma unroll
    for (uint o = 0; o < kOutputs; o++) {
      float sum = fold(sums[r][o]);
      if (kSplit) sum = simd_sum(sum);
      const bool stores =
          first_row + r < rows && first_output + o < args.n && (!kSplit || thread_idx == 0);
      device float* target = out + (first_row + r) * args.n + first_output + o;
      if (stores) *target = kAccumulate ? *target + sum : sum;
    }
  }
}

template <typename Format, bool kSplit, uint kRows, uint kOutputs, typename W, uint kRun>
kernel void
linear_decode(device float* out [[buffer(0)]], device const float* in [[buffer(1)]],
              device const uchar* weight [[buffer(2)]], constant LinearArgs& args [[buffer(3)]],
              constant Pass& pass [[buffer(4)]], uint2 group [[threadgroup_position_in_grid]],
              uint2 threads [[threads_per_threadgroup]],
              uint thread_idx [[thread_index_in_threadgroup]]) {
  const uint first_row = group.y * kRows;
  const uint first_output = (kSplit ? group.x : group.x * threads.x + thread_idx) * kOutputs;
  if (!kSplit && first_output >= args.n) return;

  // All of the rows before more outputs: what is unpacked serves as many as it can.
  constexpr uint kSums = sums_at_once<W>();
  constexpr uint kBlockRows = kRows < kSums ? kRows : kSums;
  constexpr uint kBlockOutputs = kOutputs < kSums / kBlockRows ? kOutputs : kSums / kBlockRows;
  for (uint r = 0; r < kRows && (r == 0 || first_row + r < pass.rows); r += kBlockRows) {
    for (uint o = 0; o < kOutputs && (o == 0 || first_output + o < args.n); o += kBlockOutputs) {
      multiply_block<Format, kSplit, kBlockRows, kBlockOutputs, W, kRun>(
          out, in, weight, args, pass.rows, first_row + r, first_output + o, thread_idx);
    }
  }
}

#define MTLQWEN_INSTANCE(NAME, ...)                                                                \
  template [[host_name("linear_" NAME)]] [[kernel]] decltype(linear_decode<__VA_ARGS__>)           \
      linear_decode<__VA_ARGS__>;
#define MTLQWEN_SPLIT(NAME, FORMAT)                                                                \
  MTLQWEN_INSTANCE(NAME "_decode_split_1", FORMAT, true, 1, 4, float4, 16)                         \
  MTLQWEN_INSTANCE(NAME "_decode_split_2", FORMAT, true, 2, 4, float4, 16)                         \
  MTLQWEN_INSTANCE(NAME "_decode_split_4", FORMAT, true, 4, 2, float4, 16)                         \
  MTLQWEN_INSTANCE(NAME "_decode_split_8", FORMAT, true, 8, 1, float4, 16)
#define MTLQWEN_FORMAT(NAME, FORMAT)                                                               \
  MTLQWEN_SPLIT(NAME, FORMAT)                                                                      \
  MTLQWEN_INSTANCE(NAME "_decode_whole_1", FORMAT, false, 1, 8, Wide, 32)                          \
  MTLQWEN_INSTANCE(NAME "_decode_whole_2", FORMAT, false, 2, 4, Wide, 32)                          \
  MTLQWEN_INSTANCE(NAME "_decode_whole_4", FORMAT, false, 4, 4, Wide, 32)                          \
  MTLQWEN_INSTANCE(NAME "_decode_whole_8", FORMAT, false, 8, 2, Wide, 32)
MTLQWEN_FORMAT("f32", FormatF32)
MTLQWEN_FORMAT("f16", FormatF16)
MTLQWEN_FORMAT("bf16", FormatBF16)
MTLQWEN_FORMAT("q8_0", FormatQ8_0)
MTLQWEN_SPLIT("packed", FormatPacked)
