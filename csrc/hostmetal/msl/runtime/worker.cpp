#include "worker.h"

#include <pthread.h>
#include <sys/mman.h>

namespace msl {
namespace {

constexpr uint64_t kPage = 4096;
constexpr uint64_t kStackBytes = 64 * 1024;
constexpr uint64_t kStackStride = kStackBytes + kPage;  // a guard page under each
constexpr uint64_t kRoundBytes = kLanes * kSlotBytes;
constexpr uint32_t kMaxSimdgroups = MSL_MAX_THREADS / kLanes;

// One block: Worker, fibers, simdgroups, slots of two rounds each, then the arena between guard
// pages, then the stacks.
struct Layout {
  uint64_t fibers = (sizeof(Worker) + 63) & ~63ull;
  uint64_t simdgroups = fibers + MSL_MAX_THREADS * sizeof(Fiber);
  uint64_t slots = (simdgroups + kMaxSimdgroups * sizeof(Simdgroup) + 63) & ~63ull;
  uint64_t control_end = (slots + kMaxSimdgroups * 2 * kRoundBytes + kPage - 1) & ~(kPage - 1);
  uint64_t arena = control_end + kPage;
  uint64_t stacks = arena + kArenaBytes + kPage;
  uint64_t total = stacks + MSL_MAX_THREADS * kStackStride;
};

__thread Worker* this_worker __attribute__((tls_model("initial-exec")));
pthread_key_t worker_key;
bool has_key;
pthread_once_t key_once = PTHREAD_ONCE_INIT;

void free_worker(void* worker) {
  this_worker = nullptr;
  munmap(worker, Layout().total);
}

void make_key() { has_key = pthread_key_create(&worker_key, free_worker) == 0; }

Worker* make_worker() {
  const Layout layout;
  char* base = (char*)mmap(nullptr, layout.total, PROT_NONE,
                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (base == MAP_FAILED) return nullptr;
  if (mprotect(base, layout.control_end, PROT_READ | PROT_WRITE) != 0 ||
      mprotect(base + layout.arena, kArenaBytes, PROT_READ | PROT_WRITE) != 0) {
    munmap(base, layout.total);
    return nullptr;
  }
  Worker* worker = (Worker*)base;  // all zero
  worker->fibers = (Fiber*)(base + layout.fibers);
  worker->simdgroups = (Simdgroup*)(base + layout.simdgroups);
  worker->arena = base + layout.arena;
  worker->stacks = base + layout.stacks;
  worker->block_bytes = layout.total;
  for (uint32_t i = 0; i < kMaxSimdgroups; ++i) {
    Simdgroup& group = worker->simdgroups[i];
    group.worker = worker;
    group.index = i;
    group.slots = base + layout.slots + i * 2 * kRoundBytes;
    group.other_slots = group.slots + kRoundBytes;
  }
  return worker;
}

}  // namespace

Worker* Worker::of_this_thread() {
  if (this_worker) return this_worker;
  pthread_once(&key_once, make_key);
  Worker* worker = has_key ? make_worker() : nullptr;
  if (!worker) return nullptr;
  if (pthread_setspecific(worker_key, worker) != 0) {
    munmap((void*)worker, Layout().total);
    return nullptr;
  }
  this_worker = worker;
  return worker;
}

bool Worker::ensure_stacks(uint32_t n) {
  for (; n_stacks < n; ++n_stacks) {
    char* stack = stacks + n_stacks * kStackStride + kPage;
    if (mprotect(stack, kStackBytes, PROT_READ | PROT_WRITE) != 0) return false;
  }
  return true;
}

// Tops differ in their offset within a page: else the same cache sets would hold the live frames of
// all stacks. The 8 bytes are the return address that a function expects to have been pushed.
void* Worker::stack_top(uint32_t index) const {
  const uint64_t color = index % 8 * 512;
  char* top = stacks + (index + 1) * kStackStride - color;
#if defined(__x86_64__)
  top -= 8;
#endif
  return top;
}

}  // namespace msl
