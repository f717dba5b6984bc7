// Running one threadgroup on the fibers of a worker.
#pragma once
#include "worker.h"

namespace msl {

inline bool checks(const Worker& worker, uint32_t what) {
  return (worker.dispatch->check & what) != 0;
}

// 0 .. below - 1
inline uint32_t random(Worker& worker, uint32_t below) {
  worker.random ^= worker.random << 13;
  worker.random ^= worker.random >> 7;
  worker.random ^= worker.random << 17;
  return (uint32_t)((worker.random >> 32) * below >> 32);
}

// Runs threadgroup worker.group; worker.failed afterwards where it had to be given up.
void run_threadgroup(Worker& worker);

// All fibers that have a stack become unstarted: before the first threadgroup, and after a failed
// one.
void reset_fibers(Worker& worker);

}  // namespace msl
