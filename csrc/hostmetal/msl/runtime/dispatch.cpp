// Runs threadgroups of a dispatch on the calling thread.
#include <stdio.h>
#include <string.h>

#include "schedule.h"

namespace msl {

__thread const MslDispatch* dispatch;

namespace {

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

uint64_t padded(uint32_t bytes) { return ((uint64_t)bytes + kThreadgroupGap + 15) & ~15ull; }

// Dynamic threadgroup memory lies at the end of the arena: overrunning it meets the guard page.
bool place_dynamic_memory(Worker& worker) {
  const uint32_t n = worker.dispatch->kernel->n_threadgroup_args;
  uint64_t total = 0;
  for (uint32_t i = 0; i < n; ++i) total += padded(worker.dispatch->threadgroup_bytes[i]);
  if (total > kArenaBytes) return false;
  worker.dynamic_bytes = (uint32_t)total;
  char* at = worker.arena + kArenaBytes - total;
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
const char* refusal(const MslDispatch& dispatched, uint64_t first, uint64_t count) {
  const uint64_t plane = (uint64_t)dispatched.groups[0] * dispatched.groups[1];
  const __uint128_t total = (__uint128_t)plane * dispatched.groups[2];
  if (first > total || count > total - first) return "the grid has fewer threadgroups";
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

// The order in which threadgroups run: as they are numbered, or a permutation of the range.
struct Order {
  uint64_t first, count, start, step;

  Order(Worker& worker, uint64_t first, uint64_t count)
      : first(first), count(count), start(0), step(1) {
    if (!checks(worker, MSL_CHECK_SHUFFLE) || count < 2) return;
    const uint32_t limit = (uint32_t)(count < UINT32_MAX ? count : UINT32_MAX);
    start = random(worker, limit);
    do step = 1 + random(worker, limit);
    while (common_divisor(step, count) != 1);
  }

  uint64_t at(uint64_t i) const {
    if (step == 1 && start == 0) return first + i;
    return first + (uint64_t)((start + (__uint128_t)i * step) % count);
  }

  static uint64_t common_divisor(uint64_t a, uint64_t b) {
    while (b != 0) {
      const uint64_t rest = a % b;
      a = b;
      b = rest;
    }
    return a;
  }
};

int run_groups(Worker& worker, uint64_t first, uint64_t count) {
  const uint32_t* groups = worker.dispatch->groups;
  const volatile uint32_t* abort = worker.dispatch->abort;
  const Order order(worker, first, count);
  for (uint64_t i = 0; i < count; ++i) {
    if (abort && *abort != 0) return MSL_ABORTED;
    const uint64_t at = order.at(i);
    worker.group = {(uint32_t)(at % groups[0]), (uint32_t)(at / groups[0] % groups[1]),
                    (uint32_t)(at / groups[0] / groups[1])};
    run_threadgroup(worker);
    if (worker.failed) {
      reset_fibers(worker);
      return MSL_FAILED;
    }
  }
  return MSL_OK;
}

}  // namespace

extern "C" int msl_run(const MslDispatch* dispatched, uint64_t first, uint64_t count, char* error,
                       uint64_t error_bytes) {
  if (const char* why = refusal(*dispatched, first, count)) {
    return refuse(*dispatched, error, error_bytes, why);
  }
  Worker* worker = Worker::of_this_thread();
  if (!worker) return refuse(*dispatched, error, error_bytes, "no memory for fiber stacks");
  const bool was_interrupted = worker->dispatch != nullptr;  // by a fault: the caller jumped away
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
  if (was_interrupted || worker->n_stacks != n_stacks) reset_fibers(*worker);
  if (!place_dynamic_memory(*worker)) {
    return refuse(*dispatched, error, error_bytes, "more than 32768 bytes of threadgroup memory");
  }
  dispatch = dispatched;
  const int status = run_groups(*worker, first, count);
  worker->dispatch = nullptr;
  return status;
}

}  // namespace msl
