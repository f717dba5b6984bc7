// What an edit asks of the tokens before its row (kernel_args.h: EditArgs). Integers alone.
#pragma once
#include <metal_stdlib>

#include "kernel_args.h"

// The tokens before a row: the last ones of its request, then what a draft has.
struct Before {
  device const int* tail;
  device const int* drafted;
  uint n_tail;
  uint n_drafted;

  // The i-th from the end.
  int last(uint i) const thread {
    return i < n_drafted ? drafted[n_drafted - 1 - i] : tail[n_tail - 1 - (i - n_drafted)];
  }
  bool ends_with(device const int* tokens, uint n) const thread {
    bool same = n <= n_tail + n_drafted;
    for (uint i = 0; i < n && same; i++) same = tokens[n - 1 - i] == last(i);
    return same;
  }
};

inline bool is_forbidden(device const EditArgs& edit, device const TokenEdit& entry,
                         device const BadWord* words, device const int* word_tokens,
                         thread const Before& before) {
  bool forbidden = edit.forbid_stops != 0 && entry.is_stop != 0;
  for (uint i = 0; i < entry.n_words && !forbidden; i++) {
    device const BadWord& word = words[entry.first_word + i];
    forbidden = before.ends_with(word_tokens + word.first, word.n);
  }
  return forbidden;
}

// Which of the drafted tokens are `id`: bit i for the i-th of up to 32.
inline uint drafted_as(uint id, device const int* drafted, uint n) {
  uint found = 0;
  for (uint i = 0; i < n; i++) found |= uint(drafted[i] == int(id)) << i;
  return found;
}

// Whether drafted token i stands for its id: `entries` has the bits of those whose ids are entries.
inline bool stands_alone(uint i, uint entries, device const int* drafted, uint n_drafted) {
  if (i >= n_drafted || (entries >> i & 1) != 0) return false;
  return drafted_as(uint(drafted[i]), drafted, i) == 0;
}
