// What the shadow build knows of the dispatch that runs on this OS thread.
#pragma once
#include "../runtime/worker.h"
#include "order.h"

namespace msl {

constexpr uint64_t kWord = 4;

// A bound buffer, or an array of threadgroup memory. A word has one cell until a part of it is
// accessed, from then on one for each byte.
struct Region {
  const char* begin;
  uint64_t bytes;
  Cell* words;
  Cell* cells;  // one for each byte
  int32_t buffer;

  bool holds(const char* at, uint64_t n) const {
    return at >= begin && n <= bytes && (uint64_t)(at - begin) <= bytes - n;
  }
};

constexpr uint32_t kMaxArrays = 64;
constexpr uint32_t kMaxCalls = 32;

struct Thread {
  uint32_t segment;  // 0: none yet since the last barrier
  uint32_t n_calls;
  Passed passed;
  uint32_t calls[kMaxCalls];  // places of the calls that led to where it is
};

class Shadow {
 public:
  // Takes over the reports of one dispatch. False where memory is short.
  bool start(Worker& worker, const MslDispatch& run, const uint64_t* buffer_bytes,
             MslReport* reports, uint32_t capacity);
  void finish();
  uint32_t n_reports() const { return n_reports_; }

  void start_threadgroup();
  void add_array(const char* begin, uint32_t bytes);
  void pass_barrier(bool whole_threadgroup, uint32_t mem_flags, uint32_t line);
  void access(const char* at, uint64_t bytes, AccessKind kind, const void* place);
  void enter(const void* place);
  void leave();

 private:
  const Region* find(const char* at, bool in_arena);
  bool is_private(const char* at, uint64_t bytes) const;
  bool check_cell(const Cell& cell, const Region& region, uint64_t offset, AccessKind kind,
                  Access now);
  uint32_t segment_of(Thread& thread);

  MslReport* new_report(uint32_t kind, uint32_t place);
  void report_pair(const Region& region, uint64_t offset, AccessKind kind, Access now,
                   Access before);
  void report_alone(uint32_t kind, const Region* region, int64_t offset, AccessKind access,
                    Access now);
  [[noreturn]] void out_of_bounds(const char* at, uint64_t bytes, AccessKind kind, Access now);
  [[noreturn]] void stop(const char* why);

  Worker* worker_;
  const MslDispatch* dispatch_;
  Region buffers_[MSL_MAX_BUFFERS];
  uint32_t n_buffers_;
  Region arrays_[kMaxArrays];
  uint32_t n_arrays_;
  const Region* last_;
  Cell* arena_words_;  // of the whole arena
  Cell* arena_cells_;
  Segment* segments_;  // [0] is nobody's
  uint32_t n_segments_;
  uint64_t group_;
  uint64_t access_bytes_;  // of the access being checked
  MslReport* reports_;
  uint32_t capacity_;
  uint32_t n_reports_;
  Thread threads_[MSL_MAX_THREADS];
};

// Null outside a shadow run.
extern __thread Shadow* shadow __attribute__((tls_model("initial-exec"), visibility("hidden")));

}  // namespace msl
