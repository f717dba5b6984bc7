// Runs the threadgroups of a dispatch on the calling thread: see fiber.h for how lanes take turns.
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "worker.h"

namespace msl {

__thread Fiber* current;
__thread const MslDispatch* dispatch;

namespace {

enum State : uint32_t { kReady, kAtBarrier, kDone };
enum Special : uint32_t { kLaneReturned = 1, kChecked = 2 };

bool is_barrier(uint32_t site) { return (site & 7) == kThreadgroupBarrier; }

uint32_t random(Worker& worker, uint32_t below) {
  worker.random ^= worker.random << 13;
  worker.random ^= worker.random >> 7;
  worker.random ^= worker.random << 17;
  return (uint32_t)((worker.random >> 32) * below >> 32);
}

bool checks(const Worker& worker, uint32_t what) { return (worker.dispatch->check & what) != 0; }

// Gives up the threadgroup: the fibers are abandoned where they stand, and run() starts them anew.
[[noreturn]] __attribute__((format(printf, 2, 3))) void fail(Worker& worker, const char* format,
                                                             ...) {
  char text[256];
  va_list list;
  va_start(list, format);
  vsnprintf(text, sizeof text, format, list);
  va_end(list);
  const Position& at = worker.group;
  snprintf(worker.error, worker.error_bytes, "%s, threadgroup (%u, %u, %u): %s",
           worker.dispatch->kernel->name, at.x, at.y, at.z, text);
  worker.failed = true;
  switch_fiber(current, &worker.main);
  __builtin_unreachable();
}

Fiber* lane_fiber(const Simdgroup& group, uint32_t lane) {
  return &group.worker->fibers[group.index * kLanes + lane];
}

// Links the lanes of `mask` into a ring, in lane order or shuffled, and returns one of them.
Fiber* link_ring(Simdgroup& group, uint32_t mask, bool shuffled) {
  Worker& worker = *group.worker;
  Fiber* lanes[kLanes];
  uint32_t n = 0;
  for (uint32_t rest = mask; rest != 0; rest &= rest - 1) {
    lanes[n++] = lane_fiber(group, (uint32_t)__builtin_ctz(rest));
  }
  if (shuffled) {
    for (uint32_t i = n; i > 1; --i) {
      uint32_t k = random(worker, i);
      Fiber* swapped = lanes[k];
      lanes[k] = lanes[i - 1];
      lanes[i - 1] = swapped;
    }
  }
  for (uint32_t i = 0; i < n; ++i) lanes[i]->next = lanes[i + 1 == n ? 0 : i + 1];
  return lanes[0];
}

// Lanes that returned take no part in later rounds.
void drop_returned(Simdgroup& group) {
  group.active &= ~group.returned;
  group.live = (uint32_t)__builtin_popcount(group.active);
  group.returned = 0;
  group.special &= ~(uint32_t)kLaneReturned;
  link_ring(group, group.active, false);
  group.worker->ring_changed = true;
}

void check_divergence(Simdgroup& group) {
  if (checks(*group.worker, MSL_CHECK_DIVERGENCE) && group.live != group.n_lanes) {
    fail(*group.worker,
         "line %u is reached by only %u of the %u lanes of simdgroup %u (the others returned)",
         group.site >> 3, group.live, group.n_lanes, group.index);
  }
}

// Every simdgroup waits at the barrier or is done.
void release_barrier(Worker& worker) {
  const Simdgroup* waiting = nullptr;
  bool some_done = false;
  for (uint32_t i = 0; i < worker.n_simdgroups; ++i) {
    Simdgroup& group = worker.simdgroups[i];
    if (group.state == kDone) {
      some_done = true;
      continue;
    }
    if (waiting && waiting->site != group.site) {
      fail(worker, "simdgroups %u and %u wait at different barriers (lines %u and %u)",
           waiting->index, group.index, waiting->site >> 3, group.site >> 3);
    }
    waiting = &group;
    group.state = kReady;
  }
  if (waiting && some_done && checks(worker, MSL_CHECK_DIVERGENCE)) {
    fail(worker, "the barrier of line %u is not reached by the threads that returned",
         waiting->site >> 3);
  }
}

// The simdgroup to run, after `from` has had its turn; null when all are done.
Simdgroup* choose_simdgroup(Worker& worker, const Simdgroup& from) {
  const uint32_t n = worker.n_simdgroups;
  for (int attempt = 0; attempt < 2; ++attempt) {
    // From itself on, so that a simdgroup which can go on does.
    const uint32_t begin = checks(worker, MSL_CHECK_SHUFFLE) ? random(worker, n) : from.index;
    for (uint32_t i = 0; i < n; ++i) {
      Simdgroup& group = worker.simdgroups[(begin + i) % n];
      if (group.state == kReady) return &group;
    }
    release_barrier(worker);
  }
  return nullptr;
}

// The round of `group` is complete and at least one lane waits in it.
void finish_round(Simdgroup& group) {
  if (group.returned != 0) drop_returned(group);
  check_divergence(group);
  if (is_barrier(group.site)) {
    group.state = kAtBarrier;
  } else if (group.combine) {
    group.combine(group);
  }
  group.pending = group.live;
  char* slots = group.slots;
  group.slots = group.other_slots;
  group.other_slots = slots;
}

// All lanes have arrived or returned. `me` arrived last, or is null where that lane returned.
// Returns the fiber to run.
Fiber* end_round(Simdgroup& group, Fiber* me) {
  Worker& worker = *group.worker;
  if (group.returned == group.active) {
    group.state = kDone;
  } else {
    finish_round(group);
    const bool shuffle = checks(worker, MSL_CHECK_SHUFFLE);
    if (shuffle) {
      group.first = link_ring(group, group.active, true);
    } else {
      group.first = me ? me : lane_fiber(group, (uint32_t)__builtin_ctz(group.active));
    }
  }
  Simdgroup* chosen = choose_simdgroup(worker, group);
  return chosen ? chosen->first : &worker.main;
}

// A fiber's whole life: its lane, then, on the same stack, the lanes after it that have not
// started. A kernel without barriers is therefore a plain loop over its threads.
[[noreturn]] void fiber_main() {
  for (;;) {
    Fiber* me = current;
    Simdgroup& group = *me->simdgroup;
    Worker& worker = *group.worker;
    worker.entry(*me);
    me->stack = worker.stack_top(me->index);
    me->resume = (void*)fiber_main;
    group.returned |= 1u << me->lane;
    group.special |= kLaneReturned;
    Fiber* to = --group.pending != 0 ? me->next : end_round(group, nullptr);
    current = to;
    if (to->resume == (void*)fiber_main) continue;
    Fiber nobody;  // this lane does not come back
    switch_fiber(&nobody, to);
  }
}

void start_threadgroup(Worker& worker) {
  const bool shuffle = checks(worker, MSL_CHECK_SHUFFLE);
  for (uint32_t i = 0; i < worker.n_simdgroups; ++i) {
    Simdgroup& group = worker.simdgroups[i];
    group.active = ~0u >> (kLanes - group.n_lanes);
    group.live = group.pending = group.n_lanes;
    group.returned = 0;
    group.site = 0;
    group.special = worker.dispatch->check != 0 ? (uint32_t)kChecked : 0;
    group.state = kReady;
    group.first = &worker.fibers[i * kLanes];
    if (shuffle || worker.ring_changed) group.first = link_ring(group, group.active, shuffle);
  }
  worker.ring_changed = shuffle;
  if (checks(worker, MSL_CHECK_POISON)) memset(worker.arena, 0xFF, MSL_THREADGROUP_BYTES);
}

void run_threadgroup(Worker& worker) {
  start_threadgroup(worker);
  const uint32_t first =
      checks(worker, MSL_CHECK_SHUFFLE) ? random(worker, worker.n_simdgroups) : 0;
  Fiber* to = worker.simdgroups[first].first;
  current = to;
  switch_fiber(&worker.main, to);
}

// Lane, simdgroup and position of every fiber: they stay as long as dispatches have the same
// threads per threadgroup.
void set_shape(Worker& worker, const uint32_t (&threads)[3]) {
  if (memcmp(worker.threads, threads, sizeof threads) == 0) return;
  memcpy(worker.threads, threads, sizeof threads);
  const uint32_t n = threads[0] * threads[1] * threads[2];
  worker.n_threads = n;
  worker.n_simdgroups = (n + kLanes - 1) / kLanes;
  for (uint32_t i = 0; i < n; ++i) {
    Fiber& fiber = worker.fibers[i];
    fiber.lane = i % kLanes;
    fiber.index = i;
    fiber.simdgroup = &worker.simdgroups[i / kLanes];
    fiber.position = {i % threads[0], i / threads[0] % threads[1], i / threads[0] / threads[1]};
    fiber.simdgroup->n_lanes = fiber.lane + 1;
  }
  worker.ring_changed = true;
}

void reset_fibers(Worker& worker) {
  for (uint32_t i = 0; i < worker.n_stacks; ++i) {
    worker.fibers[i].stack = worker.stack_top(i);
    worker.fibers[i].resume = (void*)fiber_main;
  }
}

uint64_t padded(uint32_t bytes) { return ((uint64_t)bytes + 15) & ~15ull; }

// Dynamic threadgroup memory lies at the end of the arena: overrunning it meets the guard page.
bool place_dynamic_memory(Worker& worker) {
  const uint32_t n = worker.dispatch->kernel->n_threadgroup_args;
  uint64_t total = 0;
  for (uint32_t i = 0; i < n; ++i) total += padded(worker.dispatch->threadgroup_bytes[i]);
  if (total > MSL_THREADGROUP_BYTES) return false;
  worker.dynamic_bytes = (uint32_t)total;
  char* at = worker.arena + MSL_THREADGROUP_BYTES - total;
  for (uint32_t i = 0; i < n; ++i) {
    worker.threadgroup_args[i] = at;
    at += padded(worker.dispatch->threadgroup_bytes[i]);
  }
  return true;
}

int refuse(const MslDispatch& dispatched, char* error, uint64_t bytes, const char* what) {
  snprintf(error, bytes, "%s: %s", dispatched.kernel->name, what);
  return MSL_FAILED;
}

// Null, or why the dispatch cannot run.
const char* refusal(const MslDispatch& dispatched) {
  const uint64_t n =
      (uint64_t)dispatched.threads[0] * dispatched.threads[1] * dispatched.threads[2];
  if (n == 0 || n > MSL_MAX_THREADS || dispatched.threads[0] > MSL_MAX_THREADS ||
      dispatched.threads[1] > MSL_MAX_THREADS || dispatched.threads[2] > MSL_MAX_THREADS) {
    return "a threadgroup has 1 to 1024 threads";
  }
  for (uint32_t i = 0; i < MSL_MAX_BUFFERS; ++i) {
    if ((dispatched.kernel->buffer_mask >> i & 1) && !dispatched.buffers[i]) {
      return "a buffer of the kernel is not bound";
    }
  }
  return nullptr;
}

int run_groups(Worker& worker, uint64_t first, uint64_t count) {
  const uint32_t* groups = worker.dispatch->groups;
  const volatile uint32_t* abort = worker.dispatch->abort;
  for (uint64_t i = first; i < first + count; ++i) {
    if (abort && *abort != 0) return MSL_ABORTED;
    worker.group = {(uint32_t)(i % groups[0]), (uint32_t)(i / groups[0] % groups[1]),
                    (uint32_t)(i / groups[0] / groups[1])};
    run_threadgroup(worker);
    if (worker.failed) {
      reset_fibers(worker);
      return MSL_FAILED;
    }
  }
  return MSL_OK;
}

int run(const MslDispatch* dispatched, uint64_t first, uint64_t count, char* error,
        uint64_t error_bytes) {
  if (const char* why = refusal(*dispatched)) return refuse(*dispatched, error, error_bytes, why);
  Worker* worker = Worker::of_this_thread();
  if (!worker) return refuse(*dispatched, error, error_bytes, "no memory for fiber stacks");
  worker->dispatch = dispatched;
  worker->entry = (Entry)dispatched->kernel->entry;
  worker->error = error;
  worker->error_bytes = error_bytes;
  worker->failed = false;
  worker->random = (dispatched->seed + first + 1) * 0x9E3779B97F4A7C15u | 1;
  set_shape(*worker, dispatched->threads);
  const uint32_t n_stacks = worker->n_stacks;
  if (!worker->ensure_stacks(worker->n_simdgroups * kLanes)) {
    return refuse(*dispatched, error, error_bytes, "no memory for fiber stacks");
  }
  if (worker->n_stacks != n_stacks) reset_fibers(*worker);
  if (!place_dynamic_memory(*worker)) {
    return refuse(*dispatched, error, error_bytes, "more than 32768 bytes of threadgroup memory");
  }
  dispatch = dispatched;
  return run_groups(*worker, first, count);
}

}  // namespace

void enter_other_site(Simdgroup& group, uint32_t site) {
  const uint32_t n_returned = (uint32_t)__builtin_popcount(group.returned);
  if (group.pending + n_returned != group.live) {
    fail(*group.worker, "lanes of simdgroup %u wait at different operations (lines %u and %u)",
         group.index, group.site >> 3, site >> 3);
  }
  group.site = site;
}

void complete_round(Fiber* me) {
  Fiber* to = end_round(*me->simdgroup, me);
  if (to == me) return;
  current = to;
  switch_fiber(me, to);
}

void fail_threadgroup_bytes(uint32_t bytes) {
  fail(*current->simdgroup->worker, "%u bytes of threadgroup memory (at most %u)", bytes,
       (unsigned)MSL_THREADGROUP_BYTES);
}

}  // namespace msl

extern "C" {
extern const uint32_t msl_n_kernels;
extern const MslKernel msl_kernels[];

__attribute__((visibility("default"))) const MslLibrary* msl_library(void) {
  static MslLibrary library;
  library = {MSL_ABI_VERSION, MSL_ISA, msl_n_kernels, msl_kernels, msl::run};
  return &library;
}
}
