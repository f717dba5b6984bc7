// Filters: top_k, top_p and min_p of a row as one threshold, its Kept.
//
//   scores   logits of allowed ids below n_valid that are neither NaN nor -infinity, descending,
//            equal ones by ascending id
//   top_k    keeps the first top_k
//   top_p    of those the shortest beginning, at least one id, whose weights reach top_p of them all
//   min_p    of all scores those from max + temperature * log(min_p) on, and the greatest
//   weight   2^40 * exp((score - max) / temperature), cut to an integer: sums have no order
//
// Zeros of both signs and what is too small to be a normal float are one score. Temperature 0 keeps
// everything: greedy needs the first id alone.
//
// filter_rows: grid (1, n_filters), one threadgroup of whole simdgroups a row, as many as there may
// be: one row is all that they share. A score and its id make a place in the order, an integer of 64
// bits; it is found digit by digit, from counts or weights of all places with the digits so far. A
// row is read once for its maximum, and three times (six where equals are to be parted) for each of
// top_k and top_p. 24.3 KiB of threadgroup memory.
#include <metal_stdlib>

#include "kernel_args.h"
#include "mask.h"
using namespace metal;

constant constexpr uint kBins = 2048;  // of one digit
constant constexpr uint kLimbs = 3;    // of a weight: no bin of 2^18 ids overflows
constant constexpr uint kLimbBits = 14;
constant constexpr uint kLaneBins = kBins / 32;
constant constexpr uint kZeroKey = 0x80000000u;
constant constexpr float kLeastTemperature = 1.17549435e-38f;  // a normal float: others may be 0

struct Histogram {
  uint limbs[kLimbs][kBins];
  ulong sums[32];  // of the bins of each lane, the greatest digits first
  uint most[32];   // the greatest key of each simdgroup
  // Of the digit found:
  uint digit;
  ulong rest;    // what is wanted of its bin
  ulong inside;  // what its bin has
};

// A row, and what weights its ids have.
struct Scores {
  device const float* logits;
  Mask mask;
  uint n;
  uint max_key;
  float scale;  // 1 / temperature
};

// Ascends with the logit; 0: no score.
inline uint key_of(float logit) {
  const uint bits = as_type<uint>(logit);
  const uint size = bits & 0x7FFFFFFFu;
  if (size > 0x7F800000u || bits == 0xFF800000u) return 0;
  if (size < 0x00800000u) return kZeroKey;
  return bits >> 31 != 0 ? ~bits : bits | kZeroKey;
}

inline float logit_of(uint key) {
  return as_type<float>(key >> 31 != 0 ? key & 0x7FFFFFFFu : ~key);
}

// Earlier ones are greater.
inline ulong place_of(uint key, uint id) { return ulong(key) << 32 | ~id; }

inline uint key_at(thread const Scores& scores, uint id) {
  return allows(scores.mask, id) ? key_of(scores.logits[id]) : 0;
}

// e^x of an x <= 0, in the steps of the twins (csrc/hostmetal/twins/math.h): it must round alike.
inline float exp_alike(float x) {
  if (x < -87.336544f) return 0.0f;
  const float shifted = fma(x, 1.44269504f, 12582912.0f);
  const float n = shifted - 12582912.0f;
  const float r = fma(-n, -2.12194440e-4f, fma(-n, 0.693359375f, x));
  float p = 1.0f / 5040.0f;
  p = fma(p, r, 1.0f / 720.0f);
  p = fma(p, r, 1.0f / 120.0f);
  p = fma(p, r, 1.0f / 24.0f);
  p = fma(p, r, 1.0f / 6.0f);
  p = fma(p, r, 0.5f);
  p = fma(p, r, 1.0f);
  p = fma(p, r, 1.0f);
  return as_type<float>(as_type<uint>(p) + (as_type<uint>(shifted) << 23));
}

inline ulong weight_of(thread const Scores& scores, uint key) {
  if (key == scores.max_key) return 1ul << 40;  // +infinity, too
  const float e = exp_alike((logit_of(key) - logit_of(scores.max_key)) * scores.scale);
  const float scaled = e * 1048576.0f;
  const uint high = uint(scaled);
  return ulong(high) << 20 | uint((scaled - float(high)) * 1048576.0f);
}

inline void add(threadgroup Histogram& histogram, uint bin, ulong amount) {
  for (uint i = 0; i < kLimbs; i++) {
    const uint limb = uint(amount >> (i * kLimbBits)) & ((1u << kLimbBits) - 1);
    if (limb != 0) {
      threadgroup atomic_uint* sum = (threadgroup atomic_uint*)&histogram.limbs[i][bin];
      atomic_fetch_add_explicit(sum, limb, memory_order_relaxed);
    }
  }
}

inline ulong amount_in(threadgroup Histogram& histogram, uint bin) {
  ulong amount = 0;
  for (uint i = 0; i < kLimbs; i++) amount += ulong(histogram.limbs[i][bin]) << (i * kLimbBits);
  return amount;
}

// Of top_p, as a number of weights: top_p * total, rounded up.
inline ulong share_of(float top_p, ulong total) {
  const ulong p = ulong(max(top_p, 0.0f) * 4294967296.0f);  // exact from 2^-8 on
  const ulong low = p * (total & 0xFFFFFFFFul);
  const ulong share = p * (total >> 32) + (low >> 32) + ((low & 0xFFFFFFFFul) != 0 ? 1 : 0);
  return max(share, 1ul);
}

// What is looked for: the last place of the shortest beginning that has `wanted`.
struct Search {
  ulong least;   // earlier places alone count
  bool weighs;   // weights are wanted, not a number of ids
  float share;   // of all weights
  ulong wanted;  // 0: the share, once the sum of weights is known
  ulong found;   // the digits so far; `least` if there is not as much as is wanted
  bool goes_on;
};

// Bits `shift` .. `shift` + `width` - 1 of what is looked for.
inline void find_digit(thread Search& search, thread const Scores& scores,
                       threadgroup Histogram& histogram, uint shift, uint width, uint thread_idx,
                       uint n_threads) {
  for (uint i = thread_idx; i < kLimbs * kBins; i += n_threads) {
    histogram.limbs[i / kBins][i % kBins] = 0;
  }
  threadgroup_barrier(mem_flags::mem_threadgroup);
  for (uint id = thread_idx; id < scores.n; id += n_threads) {
    const uint key = key_at(scores, id);
    const ulong place = place_of(key, id);
    if (key == 0 || place < search.least) continue;
    if ((place ^ search.found) >> shift >> width != 0) continue;
    const uint digit = uint(place >> shift) & ((1u << width) - 1);
    add(histogram, kBins - 1 - digit, search.weighs ? weight_of(scores, key) : 1ul);
  }
  threadgroup_barrier(mem_flags::mem_threadgroup);
  const uint first = thread_idx * kLaneBins;
  if (thread_idx < 32) {
    ulong sum = 0;
    for (uint i = 0; i < kLaneBins; i++) sum += amount_in(histogram, first + i);
    histogram.sums[thread_idx] = sum;
  }
  threadgroup_barrier(mem_flags::mem_threadgroup);
  ulong before = 0;
  ulong total = 0;
  for (uint i = 0; i < 32; i++) {
    if (i == thread_idx) before = total;
    total += histogram.sums[i];
  }
  if (search.wanted == 0) search.wanted = share_of(search.share, total);
  if (thread_idx < 32 && before < search.wanted &&
      search.wanted <= before + histogram.sums[thread_idx]) {
    uint bin = first;
    ulong inside = amount_in(histogram, bin);
    while (before + inside < search.wanted) {
      before += inside;
      inside = amount_in(histogram, ++bin);
    }
    histogram.digit = kBins - 1 - bin;
    histogram.rest = search.wanted - before;
    histogram.inside = inside;
  }
  threadgroup_barrier(mem_flags::mem_threadgroup);
  search.goes_on = search.wanted <= total;
  if (search.goes_on) {
    search.found |= ulong(histogram.digit) << shift;
    search.wanted = histogram.rest;
  } else {
    search.found = search.least;
  }
}

// Where all of the equals at the end are wanted, the id is left out of the place.
inline ulong find(thread Search& search, thread const Scores& scores,
                  threadgroup Histogram& histogram, uint thread_idx, uint n_threads) {
  constexpr uint kDigits = 6;
  for (uint i = 0; i < kDigits && search.goes_on; i++) {
    const uint half_place = i < 3 ? 32 : 0;
    const uint shift = half_place + (i % 3 == 0 ? 21 : i % 3 == 1 ? 10 : 0);
    find_digit(search, scores, histogram, shift, i % 3 == 2 ? 10 : 11, thread_idx, n_threads);
    if (i == 2 && search.goes_on) {
      const uint key = uint(search.found >> 32);
      const ulong each = search.weighs ? weight_of(scores, key) : 1ul;
      search.goes_on = search.wanted + each <= histogram.inside;
    }
  }
  return search.found;
}

// The greatest key of a row.
inline uint find_max(thread const Scores& scores, threadgroup Histogram& histogram, uint thread_idx,
                     uint n_threads) {
  uint most = 0;
  for (uint id = thread_idx; id < scores.n; id += n_threads) most = max(most, key_at(scores, id));
  most = simd_max(most);
  if (thread_idx % 32 == 0) histogram.most[thread_idx / 32] = most;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  for (uint i = 0; i < n_threads / 32; i++) most = max(most, histogram.most[i]);
  return most;
}

kernel void filter_rows(device Kept* out [[buffer(0)]],                  // (n_filters)
                        device const float* logits [[buffer(1)]],        // (n_logit_rows, vocab)
                        device const SampleArgs* samples [[buffer(2)]],  // (n_logit_rows)
                        device const FilterArgs* filters [[buffer(3)]],  // (n_filters)
                        device const uint* masks [[buffer(4)]],          // (masks, mask_words)
                        constant SampleScanArgs& args [[buffer(5)]],
                        constant Pass& pass [[buffer(6)]],
                        uint2 group [[threadgroup_position_in_grid]],
                        uint thread_idx [[thread_index_in_threadgroup]],
                        uint2 size [[threads_per_threadgroup]]) {
  threadgroup Histogram histogram;
  device const FilterArgs& filter = filters[group.y];
  device const SampleArgs& sample = samples[filter.row];
  Scores scores;
  scores.logits = logits + ulong(filter.row) * args.vocab;
  scores.mask = mask_of(masks, sample, args);
  scores.n = args.n_valid;
  scores.scale = 1.0f / clamp(sample.temperature, 1e-37f, 1e37f);  // both are normal floats
  scores.max_key = find_max(scores, histogram, thread_idx, size.x);

  Search search;
  search.found = 0;
  search.weighs = false;
  search.least = 0;
  const bool filters_any = sample.temperature >= kLeastTemperature && scores.max_key != 0;
  if (filters_any && filter.top_k != 0) {
    search.wanted = filter.top_k;
    search.goes_on = true;
    search.least = find(search, scores, histogram, thread_idx, size.x);
  }
  if (filters_any && filter.top_p < 1.0f) {
    search.weighs = true;
    search.share = filter.top_p;
    search.wanted = 0;
    search.found = 0;
    search.goes_on = true;
    search.least = max(search.least, find(search, scores, histogram, thread_idx, size.x));
  }
  if (filters_any && filter.min_p > 0.0f) {
    const float most = logit_of(scores.max_key);
    const float lowest = fma(sample.temperature, precise::log(filter.min_p), most);
    search.least = max(search.least, ulong(min(key_of(lowest), scores.max_key)) << 32);
  }
  if (thread_idx == 0) {
    const uint key = uint(search.least >> 32);
    Kept kept;
    kept.lowest = key == 0 ? -INFINITY : logit_of(key);
    kept.last_id = ~uint(search.least);
    out[group.y] = kept;
  }
}
