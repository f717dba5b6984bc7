// Edits of logits: penalties for what was said, biases, forbidden ids; and how they are undone.
//
//   edit_logits     c = how often an id was generated, and drafted before the row
//                   c > 0: x = (x > 0 ? x / repetition : x * repetition) - presence - frequency * c
//                   x += bias; MTLQWEN_FORBIDDEN where the bias is -infinity, where it is a stop that
//                   is forbidden, or where the tokens before the row and it make a bad word; what
//                   is not finite stays, and sample_scan sees it
//   restore_logits  puts the raw logits back
//
// Grid (1, n_edits), one simdgroup a row of EditArgs; no row has two. An id is changed by one lane:
// the one of its entry, or, where there is none, the one of the first drafted token that it is.
#include <metal_stdlib>

#include "edit.h"
#include "kernel_args.h"
using namespace metal;

inline float penalised(float x, uint count, device const EditArgs& edit) {
  if (count == 0) return x;
  // Explicit fmas: their twin must round alike.
  const float scaled =
      x > 0.0f ? x / edit.repetition - edit.presence : fma(x, edit.repetition, -edit.presence);
  return fma(-edit.frequency, float(count), scaled);
}

kernel void edit_logits(device float* logits [[buffer(0)]],             // (n_logit_rows, vocab)
                        device float* saved [[buffer(1)]],              // raw logits
                        device const EditArgs* edits [[buffer(2)]],     // (n_edits)
                        device const TokenEdit* entries [[buffer(3)]],  // of all rows
                        device const BadWord* words [[buffer(4)]],      // of all entries
                        device const int* word_tokens [[buffer(5)]],    // of all bad words
                        device const int* tails [[buffer(6)]],          // of all requests
                        device const int* input_ids [[buffer(7)]],      // (rows)
                        constant SampleScanArgs& args [[buffer(8)]],
                        constant Pass& pass [[buffer(9)]],
                        uint2 group [[threadgroup_position_in_grid]],
                        uint lane [[thread_index_in_simdgroup]]) {
  device const EditArgs& edit = edits[group.y];
  device float* row = logits + ulong(edit.row) * args.vocab;
  device float* raw = saved + edit.first_saved;
  const Before before = {tails + edit.first_tail, input_ids + edit.first_input, edit.n_tail,
                         edit.n_drafted};

  uint found = 0;
  for (uint i = lane; i < edit.n_entries; i += 32) {
    device const TokenEdit& entry = entries[edit.first_entry + i];
    const uint drafted = drafted_as(entry.id, before.drafted, before.n_drafted);
    found |= drafted;
    if (entry.id >= args.n_valid) continue;
    const float x = row[entry.id];
    raw[i] = x;
    const bool forbidden =
        entry.bias == -INFINITY || is_forbidden(edit, entry, words, word_tokens, before);
    const float edited = penalised(x, entry.count + popcount(drafted), edit) + entry.bias;
    if (isfinite(x)) row[entry.id] = forbidden ? MTLQWEN_FORBIDDEN : edited;
  }
  found = simd_or(found);
  if (!stands_alone(lane, found, before.drafted, before.n_drafted)) return;
  const uint id = uint(before.drafted[lane]);
  if (id >= args.n_valid) return;
  const float x = row[id];
  raw[edit.n_entries + lane] = x;
  const uint count = popcount(drafted_as(id, before.drafted, before.n_drafted));
  if (isfinite(x)) row[id] = penalised(x, count, edit);
}

kernel void restore_logits(device float* logits [[buffer(0)]],             // (n_logit_rows, vocab)
                           device const float* saved [[buffer(1)]],        // raw logits
                           device const EditArgs* edits [[buffer(2)]],     // (n_edits)
                           device const TokenEdit* entries [[buffer(3)]],  // of all rows
                           device const int* input_ids [[buffer(4)]],      // (rows)
                           constant SampleScanArgs& args [[buffer(5)]],
                           constant Pass& pass [[buffer(6)]],
                           uint2 group [[threadgroup_position_in_grid]],
                           uint lane [[thread_index_in_simdgroup]]) {
  device const EditArgs& edit = edits[group.y];
  device float* row = logits + ulong(edit.row) * args.vocab;
  device const float* raw = saved + edit.first_saved;
  device const int* drafted = input_ids + edit.first_input;

  uint found = 0;
  for (uint i = lane; i < edit.n_entries; i += 32) {
    const uint id = entries[edit.first_entry + i].id;
    found |= drafted_as(id, drafted, edit.n_drafted);
    if (id < args.n_valid) row[id] = raw[i];
  }
  found = simd_or(found);
  if (!stands_alone(lane, found, drafted, edit.n_drafted)) return;
  const uint id = uint(drafted[lane]);
  if (id < args.n_valid) row[id] = raw[edit.n_entries + lane];
}
