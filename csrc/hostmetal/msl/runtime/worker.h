// What one OS thread needs to run threadgroups: fibers, their stacks, threadgroup memory. Made at
// the thread's first dispatch, freed when the thread ends.
#pragma once
#include "../shadow/hooks.h"
#include "fiber.h"

namespace msl {

typedef void (*Entry)(const Fiber&);

struct Worker {
  Fiber main;  // the caller of run()
  Fiber* fibers;
  Simdgroup* simdgroups;
  char* arena;   // kArenaBytes, a guard page behind them
  char* stacks;  // of all possible fibers: address space, a part of it usable
  uint32_t n_stacks;
  uint64_t block_bytes;  // of this, the fibers, the arena and the stacks together

  const MslDispatch* dispatch;
  Entry entry;
  Position group;
  uint32_t threads[3];
  uint32_t n_threads;
  uint32_t n_simdgroups;
  uint32_t dynamic_bytes;
  char* threadgroup_args[MSL_MAX_THREADGROUP_SLOTS];
  bool ring_changed;  // the rings are not those of all lanes in order
  bool failed;
  uint64_t random;
  char* error;
  uint64_t error_bytes;

  // Null where memory is short.
  static Worker* of_this_thread();

  // Makes the stacks of fibers 0 .. n - 1 usable. A dispatch of one simdgroup costs 32 of them, not
  // 1024.
  bool ensure_stacks(uint32_t n);

  void* stack_top(uint32_t index) const;
};

}  // namespace msl
