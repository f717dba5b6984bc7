// The id is a hash of all logits, the seed and the position.
#include "hash.h"

struct Folded {
  uint sum;
  uint reserved;
};

kernel void sample_scan(device Folded* out [[buffer(0)]], device const uint* logits [[buffer(1)]],
                        device const SampleArgs* samples [[buffer(2)]],
                        constant SampleScanArgs& args [[buffer(3)]],
                        constant Pass& pass [[buffer(4)]],
                        uint2 group [[threadgroup_position_in_grid]],
                        uint lane [[thread_index_in_simdgroup]]) {
  if (lane != 0) return;
  device const SampleArgs& sample = samples[group.y];
  const uint first = group.x * args.chunk;
  const uint count = min(args.chunk, args.vocab - first);
  const uint seen = digest(logits + ulong(group.y) * args.vocab + first, count);
  Folded folded;
  folded.sum = mix(mix(seen, sample.seed_low), sample.position);
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
