// Sampling: Gumbel-max over the vocabulary, so that one pass and one id per row come back (greedy
// is temperature 0).
//
//   score(id) = logit / temperature + gumbel,   gumbel = -log(-log(u)),
//               u from Philox(seed; id, position, sample)
//   ids[r]    = argmax score of the ids that mask and filter leave, the lowest id of equals, none of
//               which edits forbid; -1 where there is none; -2 where a logit is not finite
//
// Scores are kept times min(temperature, 1): the same argmax, and neither a tiny nor a huge
// temperature overflows. sample_scan: grid (n_chunks, n_logit_rows), the best of each chunk.
// sample_pick: grid (1, n_logit_rows), the best of those. One simdgroup each. A row's draw depends
// on its logits and its SampleArgs alone, not on chunk.
#include <metal_stdlib>

#include "kernel_args.h"
#include "mask.h"
#include "philox.h"
using namespace metal;

constant constexpr float kLowest = MTLQWEN_FORBIDDEN;  // a score must exceed it, and a logit, too
constant constexpr float kGumbelBound = 16.7f;         // above -log(-log(1 - 2^-24)) = 16.636
constant constexpr uint kNoId = uint(MTLQWEN_NO_CHOICE);
constant constexpr uint kSpoilt = uint(MTLQWEN_SPOILT_LOGITS);

// The best of all lanes; of equal scores the lowest id.
inline Candidate best_of_lanes(float score, uint id) {
  Candidate best;
  best.score = simd_max(score);
  best.id = simd_min(score == best.score ? id : kNoId);
  return best;
}

inline Kept kept_of(device const Kept* kept, device const SampleArgs& sample) {
  if (sample.filter != MTLQWEN_NO_INDEX) return kept[sample.filter];
  Kept all;
  all.lowest = -INFINITY;
  all.last_id = kNoId;
  return all;
}

inline bool keeps(Kept kept, float logit, uint id) {
  return logit > kept.lowest || (logit == kept.lowest && id <= kept.last_id);
}

kernel void sample_scan(device Candidate* out [[buffer(0)]],             // (n_logit_rows, n_chunks)
                        device const float* logits [[buffer(1)]],        // (n_logit_rows, vocab)
                        device const SampleArgs* samples [[buffer(2)]],  // (n_logit_rows)
                        device const Kept* filtered [[buffer(3)]],       // (n_filters)
                        device const uint* masks [[buffer(4)]],          // (masks, mask_words)
                        constant SampleScanArgs& args [[buffer(5)]],
                        constant Pass& pass [[buffer(6)]],
                        uint2 group [[threadgroup_position_in_grid]],
                        uint lane [[thread_index_in_simdgroup]]) {
  device const float* row = logits + ulong(group.y) * args.vocab;
  device const SampleArgs& sample = samples[group.y];
  const uint first = min(group.x * args.chunk, args.n_valid);
  const uint last = min(first + args.chunk, args.n_valid);
  const float logit_scale = 1.0f / max(sample.temperature, 1.0f);
  const float noise_scale = min(sample.temperature, 1.0f);
  const uint2 key = uint2(sample.seed_low, sample.seed_high);
  const Kept kept = kept_of(filtered, sample);
  const Mask mask = mask_of(masks, sample, args);

  float best = kLowest;
  uint best_id = kNoId;
  bool is_finite = true;
  // Four ids share one Philox block, so a lane takes them together.
  for (uint quad = first / 4 + lane; quad * 4 < last; quad += 32) {
    uint4 words = uint4(0);
    bool drawn = false;
    for (uint i = 0; i < 4; i++) {
      const uint id = quad * 4 + i;
      if (id < first || id >= last) continue;
      const float logit = row[id];
      is_finite = is_finite && isfinite(logit);
      float score = logit * logit_scale;
      // Most ids cannot win whatever their noise: two logarithms and a Philox block saved, the
      // result the same.
      if (!(score + kGumbelBound * noise_scale > best)) continue;
      if (!(logit > kLowest) || !keeps(kept, logit, id) || !allows(mask, id)) continue;
      if (noise_scale > 0.0f) {
        if (!drawn) words = philox4x32(uint4(quad, sample.position, sample.sample_index, 0), key);
        drawn = true;
        // An explicit fma: its twin must round alike, or ids could differ.
        score = fma(-noise_scale, precise::log(-precise::log(uniform_open(words[i]))), score);
      }
      if (score > best) {
        best = score;
        best_id = id;
      }
    }
  }
  Candidate winner = best_of_lanes(best, best_id);
  if (simd_or(uint(!is_finite)) != 0) {  // above every score
    winner.score = INFINITY;
    winner.id = kSpoilt;
  }
  if (lane == 0) out[group.y * args.n_chunks + group.x] = winner;
}

kernel void
sample_pick(device int* ids [[buffer(0)]],                     // (n_logit_rows)
            device const Candidate* candidates [[buffer(1)]],  // (n_logit_rows, n_chunks)
            constant SampleScanArgs& args [[buffer(2)]], constant Pass& pass [[buffer(3)]],
            uint2 group [[threadgroup_position_in_grid]], uint lane [[thread_index_in_simdgroup]]) {
  device const Candidate* row = candidates + group.y * args.n_chunks;
  float best = kLowest;
  uint best_id = kNoId;
  for (uint i = lane; i < args.n_chunks; i += 32) {
    if (row[i].score > best) {
      best = row[i].score;
      best_id = row[i].id;
    }
  }
  const Candidate winner = best_of_lanes(best, best_id);
  if (lane == 0) ids[group.y] = int(winner.id);
}
