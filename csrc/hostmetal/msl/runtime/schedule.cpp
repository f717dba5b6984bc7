// How the fibers of a threadgroup take turns: see fiber.h.
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "schedule.h"

namespace msl {

__thread Fiber* current;

namespace {

enum State : uint32_t { kReady, kAtBarrier, kDone };
enum Special : uint32_t { kLaneReturned = 1, kChecked = 2 };

bool is_barrier(uint32_t site) { return (site & 7) == kThreadgroupBarrier; }

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
  if (checks(worker, MSL_CHECK_POISON)) memset(worker.arena, 0xFF, kArenaBytes);
  shadow_threadgroup(worker);
}

}  // namespace

void run_threadgroup(Worker& worker) {
  start_threadgroup(worker);
  const uint32_t first =
      checks(worker, MSL_CHECK_SHUFFLE) ? random(worker, worker.n_simdgroups) : 0;
  Fiber* to = worker.simdgroups[first].first;
  current = to;
  switch_fiber(&worker.main, to);
}

void reset_fibers(Worker& worker) {
  for (uint32_t i = 0; i < worker.n_stacks; ++i) {
    worker.fibers[i].stack = worker.stack_top(i);
    worker.fibers[i].resume = (void*)fiber_main;
  }
}

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
