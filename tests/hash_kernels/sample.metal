// The id is a hash of all logits, the seed, the position, and of the threshold and the mask, if any.
// The threshold is one of the logits, the temperature, the mask and the filter.
#include "hash.h"

struct Folded {
  uint sum;
  uint reserved;
};

inline uint with_mask(uint sum, device const uint* masks, device const SampleArgs& sample,
                      constant SampleScanArgs& args) {
  if (sample.mask == MTLQWEN_NO_INDEX) return sum;
  return mix(sum, digest(masks + sample.mask * args.mask_words, args.mask_words));
}

kernel void
sample_scan(device Folded* out [[buffer(0)]], device const uint* logits [[buffer(1)]],
            device const SampleArgs* samples [[buffer(2)]], device const uint* kept [[buffer(3)]],
            device const uint* masks [[buffer(4)]], constant SampleScanArgs& args [[buffer(5)]],
            constant Pass& pass [[buffer(6)]], uint2 group [[threadgroup_position_in_grid]],
            uint lane [[thread_index_in_simdgroup]]) {
  if (lane != 0) return;
  device const SampleArgs& sample = samples[group.y];
  const uint first = group.x * args.chunk;
  const uint count = min(args.chunk, args.vocab - first);
  const uint seen = digest(logits + ulong(group.y) * args.vocab + first, count);
  Folded folded;
  folded.sum = mix(mix(seen, sample.seed_low), sample.position);
  if (sample.filter != MTLQWEN_NO_INDEX) {
    folded.sum = mix(folded.sum, digest(kept + 2 * sample.filter, 2));
  }
  folded.sum = with_mask(folded.sum, masks, sample, args);
  folded.reserved = 0;
  out[group.y * args.n_chunks + group.x] = folded;
}

kernel void sample_pick(device int* ids [[buffer(0)]], device const Folded* chunks [[buffer(1)]],
                        constant SampleScanArgs& args [[buffer(2)]],
                        constant Pass& pass [[buffer(3)]],
                        uint2 group [[threadgroup_position_in_grid]],
                        uint lane [[thread_index_in_simdgroup]]) {
  if (lane != 0) return;
  uint sum = 0;
  for (uint i = 0; i < args.n_chunks; i++) sum = mix(sum, chunks[group.y * args.n_chunks + i].sum);
  ids[group.y] = int(sum % args.n_valid);
}

kernel void filter_rows(device uint2* out [[buffer(0)]], device const uint* logits [[buffer(1)]],
                        device const SampleArgs* samples [[buffer(2)]],
                        device const FilterArgs* filters [[buffer(3)]],
                        device const uint* masks [[buffer(4)]],
                        constant SampleScanArgs& args [[buffer(5)]],
                        constant Pass& pass [[buffer(6)]],
                        uint2 group [[threadgroup_position_in_grid]],
                        uint thread_idx [[thread_index_in_threadgroup]]) {
  if (thread_idx != 0) return;
  device const FilterArgs& filter = filters[group.y];
  device const SampleArgs& sample = samples[filter.row];
  uint sum = digest(logits + ulong(filter.row) * args.vocab, args.n_valid);
  sum = with_mask(mix(sum, as_type<uint>(sample.temperature)), masks, sample, args);
  sum = mix(sum, filter.top_k);
  sum = mix(sum, as_type<uint>(filter.top_p));
  sum = mix(sum, as_type<uint>(filter.min_p));
  out[group.y] = uint2(sum, mix(sum, 1u));
}
