// Logarithms of probability: of the id that was chosen for a row, or is told, and of the row's likeliest
// ids.
//
//   chosen[i] = {id, log softmax(row)[id]}, -infinity from n_valid on;  {-1, 0} where nothing was chosen
//   tops      the n_top likeliest ids, equal ones by ascending id;  {-1, -infinity} past the last
//
// Over the ids below n_valid. NaN counts as -infinity, +infinity as the largest float.
//
// Grid (1, n_logprobs), one threadgroup of up to 32 simdgroups a row; 32 of them keep the error of a
// sum over 2^18 ids below 1e-5. The ids of one column, thread t's, are t, t + threads, ... Each
// thread keeps the best id of its column. A round takes the best of all, and the simdgroup that had
// it searches that one column for the id behind it: as little work for ties as for anything else.
#include <metal_stdlib>

#include "kernel_args.h"
using namespace metal;

constant constexpr float kMost = 3.402823466e38f;
constant constexpr uint kNoId = 0xFFFFFFFFu;
constant constexpr uint kMaxSimds = 32;

// Of one row.
struct Logits {
  device const float* row;
  uint n_valid;

  Candidate at(uint id) const thread {
    const float logit = row[id];
    Candidate one;
    one.score = isnan(logit) ? -INFINITY : min(logit, kMost);
    one.id = id;
    return one;
  }
};

// It stands behind every id.
inline Candidate nothing() {
  Candidate none;
  none.score = -INFINITY;
  none.id = kNoId;
  return none;
}

inline bool is_before(Candidate a, Candidate b) {
  return a.score > b.score || (a.score == b.score && a.id < b.id);
}

inline Candidate first_of_lanes(Candidate own) {
  Candidate first;
  first.score = simd_max(own.score);
  first.id = simd_min(own.score == first.score ? own.id : kNoId);
  return first;
}

// What scores are taken off from before their exponential: finite even where no score is.
inline float top_of(Candidate best) { return max(best.score, -kMost); }

// The best id of a column; `sum` of exp(score - its top), in four running sums.
inline Candidate scan_column(thread float& sum, thread const Logits& logits, uint column,
                             uint threads) {
  Candidate best = nothing();
  float4 sums = float4(0.0f);
  for (uint start = column; start < logits.n_valid; start += 4 * threads) {
    const float before = top_of(best);
    float4 scores = float4(-INFINITY);
    for (uint i = 0; i < 4; i++) {
      const uint id = start + i * threads;
      if (id >= logits.n_valid) continue;
      const Candidate one = logits.at(id);
      scores[i] = one.score;
      if (is_before(one, best)) best = one;
    }
    const float top = top_of(best);
    if (top > before) sums *= precise::exp(before - top);
    sums += precise::exp(scores - top);
  }
  sum = (sums.x + sums.y) + (sums.z + sums.w);
  return best;
}

// The id of a column that stands behind `last`; the lanes share the column.
inline Candidate next_of_column(Candidate last, thread const Logits& logits, uint column,
                                uint threads, uint lane) {
  Candidate next = nothing();
  for (uint id = column + lane * threads; id < logits.n_valid; id += 32 * threads) {
    const Candidate one = logits.at(id);
    if (is_before(last, one) && is_before(one, next)) next = one;
  }
  return first_of_lanes(next);
}

inline TokenLogprob logprob_of(Candidate one, float top, float log_sum) {
  TokenLogprob result;
  result.id = int(one.id);
  result.logprob = one.score == -INFINITY ? -INFINITY : one.score - top - log_sum;
  return result;
}

[[kernel, max_total_threads_per_threadgroup(kMaxSimds * 32)]] void logprob_rows(
    device TokenLogprob* chosen [[buffer(0)]],       // (n_logprobs)
    device TokenLogprob* tops [[buffer(1)]],         // n_top for each of them
    device const float* logits [[buffer(2)]],        // (n_logit_rows, vocab)
    device const int* sampled [[buffer(3)]],         // (n_logit_rows)
    device const LogprobArgs* wanted [[buffer(4)]],  // (n_logprobs)
    constant SampleScanArgs& args [[buffer(5)]], constant Pass& pass [[buffer(6)]],
    uint2 group [[threadgroup_position_in_grid]], uint2 threads [[threads_per_threadgroup]],
    uint thread_idx [[thread_index_in_threadgroup]], uint simd [[simdgroup_index_in_threadgroup]],
    uint lane [[thread_index_in_simdgroup]]) {
  threadgroup Candidate bests[kMaxSimds];
  threadgroup float sums[kMaxSimds];
  device const LogprobArgs& want = wanted[group.y];
  const Logits row = {logits + ulong(want.row) * args.vocab, args.n_valid};
  const bool has_simd = lane < threads.x / 32;  // whether there is a simdgroup of that number

  float sum = 0.0f;
  Candidate own = scan_column(sum, row, thread_idx, threads.x);
  const Candidate simd_best = first_of_lanes(own);
  sum = simd_sum(sum * precise::exp(top_of(own) - top_of(simd_best)));
  if (lane == 0) {
    bests[simd] = simd_best;
    sums[simd] = sum;
  }
  threadgroup_barrier(mem_flags::mem_threadgroup);

  // Every simdgroup by itself, with the same result.
  Candidate one = nothing();
  if (has_simd) one = bests[lane];
  const float top = top_of(first_of_lanes(one));
  sum = has_simd ? sums[lane] * precise::exp(top_of(one) - top) : 0.0f;
  const float log_sum = precise::log(simd_sum(sum));

  if (thread_idx == 0) {
    const int id = want.told >= 0 ? want.told : sampled[want.row];
    TokenLogprob result;
    result.id = -1;
    result.logprob = 0.0f;
    if (id >= 0) {
      Candidate meant = nothing();
      meant.id = uint(id);
      if (meant.id < args.n_valid) meant = row.at(meant.id);
      result = logprob_of(meant, top, log_sum);
    }
    chosen[group.y] = result;
  }
  for (uint i = 0; i < want.n_top; i++) {
    if (has_simd) one = bests[lane];
    const Candidate best = first_of_lanes(one);
    if (thread_idx == 0) tops[want.first_top + i] = logprob_of(best, top, log_sum);
    threadgroup_barrier(mem_flags::mem_threadgroup);  // all have read
    const uint column = best.id % threads.x;
    if (best.id != kNoId && simd == column / 32) {
      const Candidate next = next_of_column(best, row, column, threads.x, lane);
      if (lane == column % 32) own = next;
      const Candidate left = first_of_lanes(own);
      if (lane == 0) bests[simd] = left;
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
  }
}
