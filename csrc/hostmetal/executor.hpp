// What runs kernels: the one seam below the Metal objects. They know the rules of Metal; an executor knows one machine.
#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "hostmetal/environment.hpp"
#include "hostmetal/msl/abi.h"

namespace mtlqwen::hostmetal {

enum class WorkKind : uint8_t { kLaunch, kCopy, kFill };

// One dispatch, copy or fill. Ranges are checked by the caller, and never overlap within a copy.
struct Work {
  WorkKind kind = WorkKind::kLaunch;
  const MslLibrary* library = nullptr;  // of a launch
  MslDispatch dispatch{};
  const void* source = nullptr;  // of a copy
  void* destination = nullptr;   // of a copy or fill
  uint64_t bytes = 0;
  uint8_t value = 0;  // of a fill
};

// "kernel rms_norm", "copy", "fill"
[[nodiscard]] inline std::string name_of(const Work& work) {
  if (work.kind == WorkKind::kLaunch) return std::string("kernel ") + work.dispatch.kernel->name;
  return work.kind == WorkKind::kCopy ? "copy" : "fill";
}

struct RunResult {
  int status = MSL_OK;  // MSL_OK, MSL_ABORTED, MSL_FAILED
  std::string error;    // of MSL_FAILED: the library's sentence
  size_t index = 0;     // of the work that failed
  // MSL_FAILED without a sentence: this threadgroup touched memory that is not there.
  uint64_t fault_address = 0;
  uint64_t fault_threadgroup = 0;
};

// Thread safe but for the mapping of one range by two threads.
class Executor {
 public:
  virtual ~Executor() = default;

  // Zeros, at an address that is a multiple of 256 at least. Null where the machine has no more.
  [[nodiscard]] virtual void* allocate(uint64_t bytes) = 0;
  virtual void free(void* address, uint64_t bytes) = 0;

  // Addresses without memory, for tiles of heaps to be mapped at. Null where refused. Freed by free().
  [[nodiscard]] virtual void* reserve(uint64_t bytes) = 0;
  [[nodiscard]] virtual int create_heap(uint64_t bytes) = 0;  // negative where refused
  virtual void destroy_heap(int heap) = 0;
  // Gives part of a heap its pages, for mappings to come. Only advice.
  virtual void bring(int heap, uint64_t offset, uint64_t bytes) = 0;
  // Put part of a heap, or nothing again, at a reserved address. False where the machine refused.
  [[nodiscard]] virtual bool map(void* address, uint64_t bytes, int heap, uint64_t offset) = 0;
  [[nodiscard]] virtual bool unmap(void* address, uint64_t bytes) = 0;
  // Brings the pages of mapped ranges, which kernels would fault for one by one. Only advice; ranges that are mapped no more
  // do no harm. Waits for a turn: the caller holds no lock that who has a turn may want.
  virtual void populate(std::span<const std::span<char>> ranges) = 0;
  // Mapped ranges, and gaps between them, that all reservations of the process may have together.
  [[nodiscard]] virtual uint64_t max_regions() const = 0;

  // The kernels of `<stem>.metallib`; null with a sentence where there are none for this machine. Stays loaded.
  [[nodiscard]] virtual const MslLibrary* open_library(const std::string& path,
                                                       std::string& error) = 0;
  // The right to run work; while one holds it, others may have to wait. Used by one thread at a time.
  class Turn {
   public:
    virtual ~Turn() = default;
    // Runs all of a group, in no order, and returns when it is done. Stops early once *abort is not zero.
    [[nodiscard]] virtual RunResult run(std::span<const Work> group,
                                        const volatile uint32_t* abort) = 0;
  };
  [[nodiscard]] virtual std::unique_ptr<Turn> take_turn() = 0;
  // A turn will be taken soon.
  virtual void expect_turn() = 0;
  [[nodiscard]] RunResult run(std::span<const Work> group, const volatile uint32_t* abort) {
    return take_turn()->run(group, abort);
  }

  // Threads that share the work of a turn, the one that runs it included: 1 .. max_threads().
  virtual void set_threads(unsigned n) = 0;
  [[nodiscard]] virtual unsigned n_threads() const = 0;
  [[nodiscard]] virtual unsigned max_threads() const = 0;
  // True where kernels that have a twin run as that.
  [[nodiscard]] virtual bool has_twins() const = 0;
  [[nodiscard]] virtual std::string name() const = 0;
};

[[nodiscard]] std::unique_ptr<Executor> make_cpu_executor(const Environment& environment);

}  // namespace mtlqwen::hostmetal
