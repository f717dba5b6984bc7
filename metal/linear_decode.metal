// out[row][n] (+)= sum_k in[row][k] * weight[n][k] for few rows: a chunk of weights is unpacked
// once and used for kRows rows. in (rows, k) and out (rows, n) float, weight (n, k) in the format
// of the name; k a multiple of 32, n and rows any. Two ways to share the work:
//
// split: the 32 lanes of a simdgroup split k, neighbours reading neighbouring chunks, with one
// simd_sum at the end. For GPUs. Grid (n / kOutputs, rows / kRows) rounded up, 32 threads.
//
// whole: a thread sums whole dot products and waits for nobody. For CPU cores, where waiting is a
// context switch. Grid (n / (threads * kOutputs), rows / kRows) rounded up, any number of threads.
//
// A row's result is the same bit for bit whatever kRows is and whichever rows share the pass: a dot
// product keeps kPartials running sums, element k goes to sum k % kPartials by fma in the order of
// k, and the sums are folded in halves.
//
// `partial` and the loops over it stand in the kernel itself, without helpers: that is what clang's
// SLP vectoriser turns into vector registers (Zen 5 core, clang 22, Q8_0, k = 512, 8 rows:
// 29 GMAC/s; as members of a struct: 3 GMAC/s).
#include "kernel_args.h"
#include "quant.h"

constant bool kAccumulate [[function_constant(1)]];  // add to out

enum : uint { kSimdWidth = 32 };

// Folds the running sums of one dot product in halves.
template <uint kPartials>
static float fold(thread const float (&partial)[kPartials]) {
  float sum[kPartials];
  for (uint i = 0; i < kPartials; i++) sum[i] = partial[i];
  for (uint count = kPartials / 2; count > 0; count /= 2) {
    for (uint i = 0; i < count; i++) sum[i] += sum[i + count];
  }
  return sum[0];
}

template <typename Format, bool kSplit, uint kRows, uint kOutputs, uint kPartials>
kernel void
linear_decode(device float* out [[buffer(0)]], device const float* in [[buffer(1)]],
              device const uchar* weight [[buffer(2)]], constant LinearArgs& args [[buffer(3)]],
              constant Pass& pass [[buffer(4)]], uint2 group [[threadgroup_position_in_grid]],
              uint2 threads [[threads_per_threadgroup]],
              uint thread_idx [[thread_index_in_threadgroup]]) {
  const uint first_row = group.y * kRows;
  const uint first_output = (kSplit ? group.x : group.x * threads.x + thread_idx) * kOutputs;
  if (!kSplit && first_output >= args.n) return;

  device const float* x[kRows];
  for (uint r = 0; r < kRows; r++) x[r] = in + min(first_row + r, pass.rows - 1) * args.k;
  device const uchar* row[kOutputs];
  for (uint o = 0; o < kOutputs; o++) {
    row[o] = weight + min(first_output + o, args.n - 1) * Format::row_bytes(args.k);
  }
  float partial[kRows][kOutputs][kPartials];
  for (uint r = 0; r < kRows; r++) {
    for (uint o = 0; o < kOutputs; o++) {
      for (uint i = 0; i < kPartials; i++) partial[r][o][i] = 0.0f;
    }
  }
  for (uint chunk = kSplit ? thread_idx : 0; chunk < args.k / kChunk;
       chunk += kSplit ? kSimdWidth : 1) {
    for (uint o = 0; o < kOutputs; o++) {
      const Chunk weights = Format::unpack(row[o], chunk);
      for (uint r = 0; r < kRows; r++) {
        for (uint i = 0; i < kChunk; i++) {
          thread float& sum = partial[r][o][i % kPartials];
          sum = fma(weights.value[i], x[r][chunk * kChunk + i], sum);
        }
      }
    }
  }
  for (uint r = 0; r < kRows; r++) {
    for (uint o = 0; o < kOutputs; o++) {
      float sum = fold<kPartials>(partial[r][o]);
      if (kSplit) sum = simd_sum(sum);
      const bool stores =
          first_row + r < pass.rows && first_output + o < args.n && (!kSplit || thread_idx == 0);
      device float* target = out + (first_row + r) * args.n + first_output + o;
      if (stores) *target = kAccumulate ? *target + sum : sum;
    }
  }
}

#define MTLQWEN_INSTANCE(NAME, ...)                                                                \
  template [[host_name("linear_" NAME)]] [[kernel]] decltype(linear_decode<__VA_ARGS__>)           \
      linear_decode<__VA_ARGS__>;
#define MTLQWEN_FORMAT(NAME, FORMAT)                                                               \
  MTLQWEN_INSTANCE(NAME "_decode_split_1", FORMAT, true, 1, 4, 4)                                  \
  MTLQWEN_INSTANCE(NAME "_decode_split_2", FORMAT, true, 2, 4, 4)                                  \
  MTLQWEN_INSTANCE(NAME "_decode_split_4", FORMAT, true, 4, 2, 4)                                  \
  MTLQWEN_INSTANCE(NAME "_decode_split_8", FORMAT, true, 8, 1, 4)                                  \
  MTLQWEN_INSTANCE(NAME "_decode_whole_1", FORMAT, false, 1, 8, 8)                                 \
  MTLQWEN_INSTANCE(NAME "_decode_whole_2", FORMAT, false, 2, 8, 8)                                 \
  MTLQWEN_INSTANCE(NAME "_decode_whole_4", FORMAT, false, 4, 4, 8)                                 \
  MTLQWEN_INSTANCE(NAME "_decode_whole_8", FORMAT, false, 8, 2, 8)
MTLQWEN_FORMAT("f32", FormatF32)
MTLQWEN_FORMAT("f16", FormatF16)
MTLQWEN_FORMAT("bf16", FormatBF16)
MTLQWEN_FORMAT("q8_0", FormatQ8_0)
