// Where an access of a kernel goes, and what the shadow build remembers of it.
#include "state.h"

#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include "hooks.h"

namespace msl {

__thread Shadow* shadow;

extern "C" const char __ehdr_start __attribute__((visibility("hidden")));
extern "C" const char _end __attribute__((visibility("hidden")));

namespace {

constexpr uint32_t kMaxSegments = 1u << 24;

bool within(const char* at, uint64_t n, const void* begin, uint64_t bytes) {
  const char* first = (const char*)begin;
  return at >= first && n <= bytes && (uint64_t)(at - first) <= bytes - n;
}

// A return address is the instruction behind the call.
uint32_t place_of(const void* return_address) {
  return (uint32_t)((const char*)return_address - 1 - &__ehdr_start);
}

// Address space of which only what is touched becomes memory, all zero.
void* reserve(uint64_t bytes) {
  void* at = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return at == MAP_FAILED ? nullptr : at;
}

uint64_t n_words(uint64_t bytes) { return (bytes + kWord - 1) / kWord; }

Cell* reserve_cells(uint64_t n) { return (Cell*)reserve(n * sizeof(Cell)); }

void release_cells(Cell* cells, uint64_t n) {
  if (cells) munmap(cells, n * sizeof(Cell));
}

}  // namespace

bool Shadow::start(Worker& worker, const MslDispatch& run, const uint64_t* buffer_bytes,
                   MslReport* reports, uint32_t capacity) {
  worker_ = &worker;
  dispatch_ = &run;
  reports_ = reports;
  capacity_ = capacity;
  n_segments_ = 1;
  segments_ = (Segment*)reserve(kMaxSegments * sizeof(Segment));
  arena_words_ = reserve_cells(n_words(kArenaBytes));
  arena_cells_ = reserve_cells(kArenaBytes);
  bool enough = segments_ && arena_words_ && arena_cells_;
  for (uint32_t i = 0; i < MSL_MAX_BUFFERS; ++i) {
    const char* begin = (const char*)run.buffers[i];
    if ((run.kernel->buffer_mask >> i & 1) == 0 || buffer_bytes[i] == 0) continue;
    bool bound_before = false;
    for (uint32_t k = 0; k < n_buffers_; ++k) bound_before |= buffers_[k].begin == begin;
    if (bound_before) continue;
    Region& region = buffers_[n_buffers_++];
    region = {begin, buffer_bytes[i], nullptr, nullptr, (int32_t)i};
    region.words = reserve_cells(n_words(region.bytes));
    region.cells = reserve_cells(n_words(region.bytes) * kWord);
    enough = enough && region.words && region.cells;
  }
  return enough;
}

void Shadow::finish() {
  if (segments_) munmap(segments_, kMaxSegments * sizeof(Segment));
  release_cells(arena_words_, n_words(kArenaBytes));
  release_cells(arena_cells_, kArenaBytes);
  for (uint32_t i = 0; i < n_buffers_; ++i) {
    release_cells(buffers_[i].words, n_words(buffers_[i].bytes));
    release_cells(buffers_[i].cells, n_words(buffers_[i].bytes) * kWord);
  }
}

void Shadow::start_threadgroup() {
  const Position& at = worker_->group;
  const uint32_t* groups = dispatch_->groups;
  group_ = at.x + (uint64_t)groups[0] * (at.y + (uint64_t)groups[1] * at.z);
  n_arrays_ = 0;
  last_ = nullptr;
  for (uint32_t i = 0; i < worker_->n_threads; ++i) {
    threads_[i].segment = 0;
    threads_[i].n_calls = 0;
    threads_[i].passed = {};
  }
  for (uint32_t i = 0; i < dispatch_->kernel->n_threadgroup_args; ++i) {
    add_array(worker_->threadgroup_args[i], dispatch_->threadgroup_bytes[i]);
  }
}

// Every thread of the threadgroup comes here with the same arrays.
void Shadow::add_array(const char* begin, uint32_t bytes) {
  for (uint32_t i = 0; i < n_arrays_; ++i) {
    if (arrays_[i].begin == begin) return;
  }
  if (n_arrays_ == kMaxArrays) stop("more threadgroup arrays than the shadow build can watch");
  // The cells of its bytes are set when a word is split.
  Cell* words = arena_words_ + (uint64_t)(begin - worker_->arena) / kWord;
  memset((void*)words, 0, n_words(bytes) * sizeof(Cell));
  arrays_[n_arrays_++] = {begin, bytes, words, arena_cells_ + (begin - worker_->arena), -1};
}

void Shadow::pass_barrier(bool whole_threadgroup, uint32_t mem_flags, uint32_t line) {
  Thread& thread = threads_[current->index];
  Passed& passed = thread.passed;
  thread.segment = 0;
  passed.last_line = line;
  ++(whole_threadgroup ? passed.any_threadgroup : passed.any_simdgroup);
  uint32_t* counts = whole_threadgroup ? passed.threadgroup : passed.simdgroup;
  for (uint32_t kind = 0; kind < kMemoryKinds; ++kind) counts[kind] += mem_flags >> kind & 1;
}

void Shadow::enter(const void* place) {
  Thread& thread = threads_[current->index];
  if (thread.n_calls < kMaxCalls) thread.calls[thread.n_calls] = place_of(place);
  ++thread.n_calls;
}

void Shadow::leave() { --threads_[current->index].n_calls; }

uint32_t Shadow::segment_of(Thread& thread) {
  if (thread.segment == 0) {
    if (n_segments_ == kMaxSegments) stop("more barriers than the shadow build can remember");
    segments_[n_segments_] = {group_, current->index, thread.passed};
    thread.segment = n_segments_++;
  }
  return thread.segment;
}

const Region* Shadow::find(const char* at, bool in_arena) {
  const Region* regions = in_arena ? arrays_ : buffers_;
  const uint32_t n = in_arena ? n_arrays_ : n_buffers_;
  if (last_ && last_->holds(at, 1)) return last_;
  for (uint32_t i = 0; i < n; ++i) {
    if (regions[i].holds(at, 1)) return last_ = &regions[i];
  }
  return nullptr;
}

// Memory that a kernel reads without naming it: constants of the library, the dispatch, its state.
bool Shadow::is_private(const char* at, uint64_t bytes) const {
  return within(at, bytes, &__ehdr_start, (uint64_t)(&_end - &__ehdr_start)) ||
         within(at, bytes, dispatch_, sizeof *dispatch_) ||
         within(at, bytes, &current, sizeof current) ||
         within(at, bytes, &msl::dispatch, sizeof msl::dispatch);
}

void Shadow::access(const char* at, uint64_t bytes, AccessKind kind, const void* place) {
  const bool in_arena = within(at, 1, worker_->arena, kArenaBytes);
  // Fibers, their stacks, the slots of cross-lane operations.
  if (!in_arena && within(at, 1, worker_, worker_->block_bytes)) return;
  const Region* region = find(at, in_arena);
  if (!region && is_private(at, bytes)) return;
  const Access now = {segment_of(threads_[current->index]), place_of(place)};
  if (!region || !region->holds(at, bytes)) out_of_bounds(at, bytes, kind, now);
  access_bytes_ = bytes;
  const uint64_t first = (uint64_t)(at - region->begin);
  const MemoryKind memory = in_arena ? kThreadgroupMemory : kDeviceMemory;
  const uint64_t end = first + bytes;
  bool sound = true;
  for (uint64_t i = first; i < end;) {
    Cell& word = region->words[i / kWord];
    const bool whole = i % kWord == 0 && end - i >= kWord;
    if (!whole && !word.is_split) {
      for (uint64_t k = 0; k < kWord; ++k) region->cells[i / kWord * kWord + k] = word;
      word.is_split = true;
    }
    Cell& cell = word.is_split ? region->cells[i] : word;
    sound = sound && check_cell(cell, *region, i, kind, now);
    cell.add(kind, now, segments_, memory);
    i += word.is_split ? 1 : kWord;
  }
}

// False where it made a report: one for each access is enough.
bool Shadow::check_cell(const Cell& cell, const Region& region, uint64_t offset, AccessKind kind,
                        Access now) {
  const Segment& segment = segments_[now.segment];
  const MemoryKind memory = region.buffer < 0 ? kThreadgroupMemory : kDeviceMemory;
  const Access before = cell.conflict(kind, segment, segments_, memory);
  if (before) {
    report_pair(region, offset, kind, now, before);
    return false;
  }
  const bool reads = kind == kRead || kind == kAtomicRead;
  if (memory == kThreadgroupMemory && reads && !cell.written()) {
    report_alone(MSL_REPORT_UNINITIALISED, &region, (int64_t)offset, kind, now);
    return false;
  }
  return true;
}

}  // namespace msl
