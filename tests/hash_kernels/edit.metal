// A logit becomes a hash of what metal/edit.metal changes it by: penalties if it was said, a bias
// that is not 0. Where it is forbidden it becomes 0.
#include "../../metal/edit.h"
#include "hash.h"

inline uint penalised(uint x, uint count, device const EditArgs& edit) {
  if (count == 0) return x;
  const uint penalties = mix(mix(as_type<uint>(edit.presence), as_type<uint>(edit.frequency)),
                             as_type<uint>(edit.repetition));
  return mix(x, mix(penalties, count));
}

kernel void
edit_logits(device uint* logits [[buffer(0)]], device uint* saved [[buffer(1)]],
            device const EditArgs* edits [[buffer(2)]],
            device const TokenEdit* entries [[buffer(3)]],
            device const BadWord* words [[buffer(4)]], device const int* word_tokens [[buffer(5)]],
            device const int* tails [[buffer(6)]], device const int* input_ids [[buffer(7)]],
            constant SampleScanArgs& args [[buffer(8)]], constant Pass& pass [[buffer(9)]],
            uint2 group [[threadgroup_position_in_grid]], uint lane [[thread_index_in_simdgroup]]) {
  if (lane != 0) return;
  device const EditArgs& edit = edits[group.y];
  device uint* row = logits + ulong(edit.row) * args.vocab;
  device uint* raw = saved + edit.first_saved;
  const Before before = {tails + edit.first_tail, input_ids + edit.first_input, edit.n_tail,
                         edit.n_drafted};
  uint found = 0;
  for (uint i = 0; i < edit.n_entries; i++) {
    device const TokenEdit& entry = entries[edit.first_entry + i];
    const uint drafted = drafted_as(entry.id, before.drafted, before.n_drafted);
    found |= drafted;
    if (entry.id >= args.n_valid) continue;
    raw[i] = row[entry.id];
    uint edited = penalised(raw[i], entry.count + popcount(drafted), edit);
    if (entry.bias != 0.0f) edited = mix(edited, as_type<uint>(entry.bias));
    if (is_forbidden(edit, entry, words, word_tokens, before)) edited = 0;
    row[entry.id] = edited;
  }
  for (uint i = 0; i < before.n_drafted; i++) {
    const uint id = uint(before.drafted[i]);
    if (!stands_alone(i, found, before.drafted, before.n_drafted) || id >= args.n_valid) continue;
    const uint count = popcount(drafted_as(id, before.drafted, before.n_drafted));
    raw[edit.n_entries + i] = row[id];
    row[id] = penalised(row[id], count, edit);
  }
}

kernel void restore_logits(
    device uint* logits [[buffer(0)]], device const uint* saved [[buffer(1)]],
    device const EditArgs* edits [[buffer(2)]], device const TokenEdit* entries [[buffer(3)]],
    device const int* input_ids [[buffer(4)]], constant SampleScanArgs& args [[buffer(5)]],
    constant Pass& pass [[buffer(6)]], uint2 group [[threadgroup_position_in_grid]],
    uint lane [[thread_index_in_simdgroup]]) {
  if (lane != 0) return;
  device const EditArgs& edit = edits[group.y];
  device uint* row = logits + ulong(edit.row) * args.vocab;
  device const uint* raw = saved + edit.first_saved;
  device const int* drafted = input_ids + edit.first_input;
  uint found = 0;
  for (uint i = 0; i < edit.n_entries; i++) {
    const uint id = entries[edit.first_entry + i].id;
    found |= drafted_as(id, drafted, edit.n_drafted);
    if (id < args.n_valid) row[id] = raw[i];
  }
  for (uint i = 0; i < edit.n_drafted; i++) {
    const uint id = uint(drafted[i]);
    if (stands_alone(i, found, drafted, edit.n_drafted) && id < args.n_valid) {
      row[id] = raw[edit.n_entries + i];
    }
  }
}
