// When two accesses of a dispatch are ordered. A segment is what one thread does between two
// barriers; accesses are remembered by their segment and their place in the code.
//
// A threadgroup barrier orders the threads of a threadgroup, a simdgroup barrier those of a
// simdgroup, each only for the kinds of memory that its mem_flags name. Nothing orders two
// threadgroups. Cross-lane operations (simd_sum, shuffles) order no memory.
#pragma once
#include "../runtime/fiber.h"

namespace msl {

enum MemoryKind : uint32_t { kDeviceMemory, kThreadgroupMemory };
constexpr uint32_t kMemoryKinds = 2;

enum AccessKind : uint32_t { kRead, kWrite, kAtomicRead, kAtomicWrite };
inline bool is_atomic(AccessKind kind) { return kind >= kAtomicRead; }
inline bool is_write(AccessKind kind) { return kind == kWrite || kind == kAtomicWrite; }

// Barriers that a thread has passed. Two threads that may pass a barrier together count alike.
struct Passed {
  uint32_t threadgroup[kMemoryKinds];
  uint32_t simdgroup[kMemoryKinds];
  uint32_t any_threadgroup;  // whatever their mem_flags
  uint32_t any_simdgroup;
  uint32_t last_line;  // of the last one
};

struct Segment {
  uint64_t group;  // threadgroup, as numbered in the grid
  uint32_t thread;
  Passed passed;

  uint32_t simdgroup() const { return thread / kLanes; }
  bool same_simdgroup(const Segment& b) const {
    return group == b.group && simdgroup() == b.simdgroup();
  }
};

inline bool ordered(const Segment& a, const Segment& b, MemoryKind kind) {
  if (a.group != b.group) return false;
  if (a.thread == b.thread) return true;
  if (a.passed.threadgroup[kind] != b.passed.threadgroup[kind]) return true;
  return a.simdgroup() == b.simdgroup() && a.passed.simdgroup[kind] != b.passed.simdgroup[kind];
}

// A barrier stands between them that would do if its mem_flags named this memory.
inline bool ordered_but_for_flags(const Segment& a, const Segment& b) {
  if (a.group != b.group) return false;
  if (a.passed.any_threadgroup != b.passed.any_threadgroup) return true;
  return a.simdgroup() == b.simdgroup() && a.passed.any_simdgroup != b.passed.any_simdgroup;
}

struct Access {
  uint32_t segment;  // index; 0: none
  uint32_t place;    // offset of the instruction in the library

  explicit operator bool() const { return segment != 0; }
};

// Accesses that do not conflict with each other: reads, or atomics. Two are enough to answer
// whether a later access is ordered after all of them, as long as they lie in different simdgroups
// where there are such.
struct AccessSet {
  Access last;
  Access other;

  void add(Access access, const Segment* segments, MemoryKind kind) {
    if (last.segment == access.segment) return;
    const Segment& now = segments[access.segment];
    if (other && ordered(segments[other.segment], now, kind)) other = {};
    if (last && !ordered(segments[last.segment], now, kind)) {
      if (!other || segments[other.segment].same_simdgroup(now)) other = last;
    }
    last = access;
  }

  // One that is not ordered before `now`, if any.
  Access conflict(const Segment& now, const Segment* segments, MemoryKind kind) const {
    if (last && !ordered(segments[last.segment], now, kind)) return last;
    if (other && !ordered(segments[other.segment], now, kind)) return other;
    return {};
  }
};

// What is known of one byte.
struct Cell {
  Access writer;
  AccessSet readers;  // since the last write
  AccessSet atomics;  // since the last write
  bool atomics_write;
  bool is_split;  // of a word: see Region

  bool written() const { return writer || atomics_write; }

  // An earlier access that conflicts with this one and is not ordered before it, if any.
  Access conflict(AccessKind access, const Segment& now, const Segment* segments,
                  MemoryKind memory) const {
    if (writer && !ordered(segments[writer.segment], now, memory)) return writer;
    Access before = {};
    if (is_write(access)) before = readers.conflict(now, segments, memory);
    if (!before && (access == kWrite || (access == kRead && atomics_write))) {
      before = atomics.conflict(now, segments, memory);
    }
    return before;
  }

  void add(AccessKind access, Access now, const Segment* segments, MemoryKind memory) {
    if (access == kWrite) {
      writer = now;
      readers = atomics = {};
      atomics_write = false;
    } else if (is_atomic(access)) {
      atomics.add(now, segments, memory);
      atomics_write |= access == kAtomicWrite;
    } else {
      readers.add(now, segments, memory);
    }
  }
};

}  // namespace msl
