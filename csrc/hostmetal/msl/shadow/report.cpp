// Reports: one for each place in the code and kind of mistake.
#include <stdio.h>

#include "state.h"

namespace msl {

constexpr uint32_t kEntryCalls = 2;  // of the entry by the runtime, of the kernel by the entry

// Null where the mistake is known already or there is no room.
MslReport* Shadow::new_report(uint32_t kind, uint32_t place) {
  const uint32_t known = n_reports_ < capacity_ ? n_reports_ : capacity_;
  for (uint32_t i = 0; i < known; ++i) {
    if (reports_[i].kind == kind && reports_[i].places[0] == place) return nullptr;
  }
  if (n_reports_++ >= capacity_) return nullptr;
  MslReport& report = reports_[n_reports_ - 1];
  report = {};
  report.kind = kind;
  report.places[report.n_places++] = place;
  const Thread& thread = threads_[current->index];
  for (uint32_t i = thread.n_calls; i > kEntryCalls && report.n_places < MSL_MAX_PLACES; --i) {
    if (i <= kMaxCalls) report.places[report.n_places++] = thread.calls[i - 1];
  }
  report.group = group_;
  report.thread = current->index;
  report.bytes = access_bytes_;
  return &report;
}

void Shadow::report_pair(const Region& region, uint64_t offset, AccessKind kind, Access now,
                         Access before) {
  const Segment& a = segments_[before.segment];
  const Segment& b = segments_[now.segment];
  uint32_t what = MSL_REPORT_RACE;
  if (a.group != b.group) {
    what = MSL_REPORT_THREADGROUPS;
  } else if (ordered_but_for_flags(a, b)) {
    what = MSL_REPORT_MEM_FLAGS;
  } else if (a.same_simdgroup(b)) {
    what = MSL_REPORT_SIMDGROUP_RACE;
  }
  MslReport* report = new_report(what, now.place);
  if (!report) return;
  report->buffer = region.buffer;
  report->offset = (int64_t)offset;
  report->is_write = is_write(kind);
  report->other_group = a.group;
  report->other_thread = a.thread;
  report->other_place = before.place;
  if (what == MSL_REPORT_MEM_FLAGS) report->barrier_line = b.passed.last_line;
}

void Shadow::report_alone(uint32_t kind, const Region* region, int64_t offset, AccessKind access,
                          Access now) {
  MslReport* report = new_report(kind, now.place);
  if (!report) return;
  report->buffer = region ? region->buffer : -1;
  report->offset = offset;
  report->is_write = is_write(access);
}

// Reported against what lies nearest. The dispatch ends: the access itself may not be survived.
void Shadow::out_of_bounds(const char* at, uint64_t bytes, AccessKind kind, Access now) {
  const bool in_arena = at >= worker_->arena && at < worker_->arena + kArenaBytes;
  const Region* regions = in_arena ? arrays_ : buffers_;
  const uint32_t n = in_arena ? n_arrays_ : n_buffers_;
  const Region* nearest = nullptr;
  uint64_t least = UINT64_MAX;
  for (uint32_t i = 0; i < n; ++i) {
    const char* end = regions[i].begin + regions[i].bytes;
    const uint64_t distance = at < regions[i].begin ? (uint64_t)(regions[i].begin - at)
                              : at < end            ? 0
                                                    : (uint64_t)(at - end);
    if (distance >= least) continue;
    least = distance;
    nearest = &regions[i];
  }
  access_bytes_ = bytes;
  report_alone(MSL_REPORT_OUT_OF_BOUNDS, nearest, nearest ? at - nearest->begin : 0, kind, now);
  stop("access out of bounds");
}

// Gives up the threadgroup and the dispatch.
void Shadow::stop(const char* why) {
  snprintf(worker_->error, worker_->error_bytes, "%s: %s", dispatch_->kernel->name, why);
  worker_->failed = true;
  switch_fiber(current, &worker_->main);
  __builtin_unreachable();
}

}  // namespace msl
