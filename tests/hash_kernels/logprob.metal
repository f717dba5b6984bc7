// Numbers from -1 to 0 that are hashes of all logits and of the id.
#include "hash.h"

inline TokenLogprob hashed(uint seen, int id) {
  TokenLogprob result;
  result.id = id;
  result.logprob = id < 0 ? 0.0f : -float(mix(seen, uint(id)) >> 8) / 16777216.0f;  // exact
  return result;
}

kernel void
logprob_rows(device TokenLogprob* chosen [[buffer(0)]], device TokenLogprob* tops [[buffer(1)]],
             device const uint* logits [[buffer(2)]], device const int* sampled [[buffer(3)]],
             device const LogprobArgs* wanted [[buffer(4)]],
             constant SampleScanArgs& args [[buffer(5)]], constant Pass& pass [[buffer(6)]],
             uint2 group [[threadgroup_position_in_grid]],
             uint thread_idx [[thread_index_in_threadgroup]]) {
  if (thread_idx != 0) return;
  device const LogprobArgs& want = wanted[group.y];
  const uint seen = digest(logits + ulong(want.row) * args.vocab, args.n_valid);
  chosen[group.y] = hashed(seen, want.told >= 0 ? want.told : sampled[want.row]);
  for (uint i = 0; i < want.n_top; i++) {
    tops[want.first_top + i] = hashed(seen, int(mix(seen, i) % args.n_valid));
  }
}
