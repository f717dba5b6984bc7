// The C interface between a compiled kernel library (metal/*.metal, one shared object for each CPU
// level) and hostmetal. Both sides include this file and nothing else of each other. Plain C types
// only.
#pragma once
#include <stdint.h>

#define MSL_ABI_VERSION 2
#define MSL_MAX_BUFFERS 31           // [[buffer(0..30)]]
#define MSL_MAX_THREADGROUP_SLOTS 8  // [[threadgroup(0..7)]]
#define MSL_MAX_CONSTANTS 64         // [[function_constant(0..63)]]
#define MSL_MAX_THREADS 1024         // of one threadgroup
#define MSL_THREADGROUP_BYTES 32768  // Metal's limit, static and dynamic together

#ifdef __cplusplus
extern "C" {
#endif

// A function constant that a kernel reads, itself or through a function that it calls.
typedef struct {
  uint32_t index;
  uint32_t data_type;  // value of MTL::DataType (Float 3, Int 29, UInt 33, Bool 53, ...)
  const char* name;
} MslConstant;

// A hand-written SIMD form of a kernel. Runs threadgroups first .. first + count - 1 of the dispatch,
// which it may count in an order of its own, on the calling thread; any number of threads may be
// inside. Returns MSL_OK or MSL_ABORTED.
struct MslDispatch;
typedef int (*MslTwin)(const struct MslDispatch* dispatch, uint64_t first, uint64_t count);

typedef struct {
  const char* name;             // host_name, else the function's own name
  uint32_t buffer_mask;         // bit n: the kernel has an argument [[buffer(n)]]
  uint32_t n_threadgroup_args;  // dynamic [[threadgroup(n)]] arguments
  uint32_t n_constants;
  const MslConstant* constants;
  const void* entry;  // private to the library
  MslTwin twin;       // null: there is none
  MslTwin dot_twin;   // for CPUs with integer dot products; null: `twin` serves
} MslKernel;

typedef struct MslDispatch {
  const MslKernel* kernel;
  void* buffers[MSL_MAX_BUFFERS];         // host pointers; null where not bound
  uint64_t constants[MSL_MAX_CONSTANTS];  // by index, value in the low bytes
  uint32_t groups[3];                     // threadgroups per grid
  uint32_t threads[3];                    // threads per threadgroup
  uint32_t threadgroup_bytes[MSL_MAX_THREADGROUP_SLOTS];
  uint32_t check;                  // MSL_CHECK_* bits
  uint64_t seed;                   // of MSL_CHECK_SHUFFLE
  const volatile uint32_t* abort;  // non-zero: stop before the next threadgroup
} MslDispatch;

enum {
  MSL_CHECK_DIVERGENCE = 1,  // cross-lane operations and barriers must be reached by all threads
  MSL_CHECK_POISON = 2,      // threadgroup memory starts as 0xFF bytes
  MSL_CHECK_SHUFFLE = 4,     // lanes, simdgroups and threadgroups run in random order
};

enum { MSL_OK = 0, MSL_ABORTED = 1, MSL_FAILED = 2 };

typedef struct {
  uint32_t abi_version;
  const char* isa;  // "avx2", "avx512", "neon"
  uint32_t n_kernels;
  const MslKernel* kernels;
  // Runs threadgroups first .. first + count - 1 (x fastest, then y, z) on the calling thread. Any
  // number of threads may be inside at once, of any dispatches. Returns MSL_OK, MSL_ABORTED, or
  // MSL_FAILED with a sentence in `error`.
  int (*run)(const MslDispatch* dispatch, uint64_t first, uint64_t count, char* error,
             uint64_t error_bytes);
} MslLibrary;

// The one exported symbol of a kernel library.
const MslLibrary* msl_library(void);

// A library of the shadow build (build_kernels.py --shadow) exports a second one. It runs a whole
// dispatch and watches every access to its buffers and to threadgroup memory.

#define MSL_SHADOW_VERSION 1
#define MSL_MAX_PLACES 8

enum {
  MSL_REPORT_RACE = 0,            // between simdgroups: no threadgroup_barrier between them
  MSL_REPORT_SIMDGROUP_RACE = 1,  // between lanes: no simdgroup_barrier between them
  MSL_REPORT_MEM_FLAGS = 2,       // the barrier between them does not name this memory
  MSL_REPORT_THREADGROUPS = 3,    // between two threadgroups
  MSL_REPORT_UNINITIALISED = 4,   // read of threadgroup memory that the threadgroup did not write
  MSL_REPORT_OUT_OF_BOUNDS = 5,   // ends the dispatch
};

typedef struct {
  uint32_t kind;
  int32_t buffer;  // index; -1: an array of threadgroup memory
  int64_t offset;  // of the byte, in the buffer or array
  uint64_t bytes;  // of the access
  uint64_t group;  // threadgroup, as numbered in the grid
  uint32_t thread;
  uint32_t is_write;
  uint64_t other_group;  // of the earlier access, where there is one
  uint32_t other_thread;
  uint32_t other_place;   // 0: there is none
  uint32_t barrier_line;  // MSL_REPORT_MEM_FLAGS: the barrier
  uint32_t n_places;
  uint32_t places[MSL_MAX_PLACES];  // offsets in the library: the access, then the calls around it
} MslReport;

typedef struct {
  uint32_t version;
  // As MslLibrary.run, for all threadgroups. buffer_bytes has MSL_MAX_BUFFERS lengths. *n_reports
  // may exceed `capacity`; one place is reported once for each kind. Where a report ends the
  // dispatch, the result is MSL_FAILED.
  int (*run)(const MslDispatch* dispatch, const uint64_t* buffer_bytes, MslReport* reports,
             uint32_t capacity, uint32_t* n_reports, char* error, uint64_t error_bytes);
} MslShadow;

const MslShadow* msl_shadow(void);

#ifdef __cplusplus
}
#endif
