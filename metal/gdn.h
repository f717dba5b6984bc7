// Where the Gated DeltaNet kernels find things.
#pragma once
#include <metal_stdlib>

#include "kernel_args.h"

// Floats before a bank.
inline ulong bank_start(uint bank, constant GdnArgs& args) {
  return ulong(bank) * args.bank_floats;
}

inline uint key_head(uint v_head, constant GdnArgs& args) {
  return args.k_head_tiled != 0 ? v_head % args.n_k_heads
                                : v_head / (args.n_v_heads / args.n_k_heads);
}
