// The function of abi.h that only the shadow build has.
#include <stdio.h>
#include <sys/mman.h>

#include "state.h"

extern "C" int msl_run(const MslDispatch* dispatch, uint64_t first, uint64_t count, char* error,
                       uint64_t error_bytes);

namespace msl {
namespace {

int run_watched(const MslDispatch* dispatch, const uint64_t* buffer_bytes, MslReport* reports,
                uint32_t capacity, uint32_t* n_reports, char* error, uint64_t error_bytes) {
  *n_reports = 0;
  Worker* worker = Worker::of_this_thread();
  void* memory =
      mmap(nullptr, sizeof(Shadow), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (!worker || memory == MAP_FAILED) {
    snprintf(error, error_bytes, "%s: no memory for the shadow build", dispatch->kernel->name);
    return MSL_FAILED;
  }
  Shadow* state = (Shadow*)memory;  // all zero
  int result = MSL_FAILED;
  if (state->start(*worker, *dispatch, buffer_bytes, reports, capacity)) {
    const uint32_t* groups = dispatch->groups;
    shadow = state;
    result = msl_run(dispatch, 0, (uint64_t)groups[0] * groups[1] * groups[2], error, error_bytes);
    shadow = nullptr;
  } else {
    snprintf(error, error_bytes, "%s: no memory for the cells of its buffers",
             dispatch->kernel->name);
  }
  *n_reports = state->n_reports();
  state->finish();
  munmap(memory, sizeof(Shadow));
  return result;
}

const MslShadow library = {MSL_SHADOW_VERSION, run_watched};

}  // namespace
}  // namespace msl

extern "C" __attribute__((visibility("default"))) const MslShadow* msl_shadow() {
  return &msl::library;
}
