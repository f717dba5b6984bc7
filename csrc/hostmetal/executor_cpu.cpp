#include "hostmetal/executor_cpu.hpp"

#include <dlfcn.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <numeric>
#include <random>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "base/math.hpp"
#include "hostmetal/cpu.hpp"
#include "hostmetal/environment.hpp"
#include "hostmetal/trap.hpp"

namespace mtlqwen::hostmetal {
namespace {

// The kernel's default of vm.max_map_count, and what the process keeps for threads, files and libraries.
constexpr uint64_t kDefaultMaxMappings = 65'530;
constexpr uint64_t kOtherMappings = 8'192;

// Between buffers under MTLQWEN_HOST_CHECK=guard: what kernels miss a buffer by is rarely more.
constexpr uint64_t kGuardBytes = uint64_t{1} << 20;
constexpr uint64_t kBufferAlignment = 256;  // what Metal asks of offsets, hence gives to buffers

uint64_t page_bytes() { return static_cast<uint64_t>(sysconf(_SC_PAGESIZE)); }

uint64_t read_max_regions() {
  uint64_t limit = kDefaultMaxMappings;
  std::ifstream("/proc/sys/vm/max_map_count") >> limit;
  return limit - std::min(limit / 2, kOtherMappings);
}

void* or_null(void* mapping) { return mapping == MAP_FAILED ? nullptr : mapping; }

// Of one entry of the higher page table, on every CPU that we run on.
constexpr uint64_t kHugeBytes = uint64_t{2} << 20;

// MADV_POPULATE_READ of Linux 5.14; the headers of older systems lack it.
constexpr int kPopulateRead = 22;
constexpr size_t kPopulateUnit = size_t{256} << 10;  // that one thread populates at a time
constexpr size_t kPopulateRun = 16;                  // of these, before others may have the threads

// Fewer page faults and fewer misses of the translation cache. Only advice.
void advise_huge(void* address, uint64_t bytes) {
  if (bytes >= kHugeBytes) madvise(address, bytes, MADV_HUGEPAGE);
}

// Large ranges begin where a huge page can.
void* map_range(uint64_t bytes, int protection, int flags) {
  const uint64_t slack = bytes >= kHugeBytes ? kHugeBytes : 0;
  void* range =
      mmap(nullptr, bytes + slack, protection, MAP_PRIVATE | MAP_ANONYMOUS | flags, -1, 0);
  if (range == MAP_FAILED || slack == 0) return or_null(range);
  char* first = static_cast<char*>(range);
  const uint64_t skipped =
      (kHugeBytes - reinterpret_cast<uint64_t>(first) % kHugeBytes) % kHugeBytes;
  const uint64_t end = align_up(skipped + bytes, page_bytes());
  if (skipped != 0) munmap(first, skipped);
  if (end < bytes + slack) munmap(first + end, bytes + slack - end);
  return first + skipped;
}

}  // namespace

std::unique_ptr<Executor> make_cpu_executor(const Environment& environment) {
  return std::make_unique<CpuExecutor>(ThreadPool::shared(), environment);
}

CpuExecutor::CpuExecutor(ThreadPool& pool, const Environment& environment)
    : pool_(pool), max_threads_(usable_cpus()), n_threads_(usable_cores()),
      max_regions_(read_max_regions()), checks_(environment.checks),
      has_twins_(environment.has_twins), can_populate_(madvise(nullptr, 0, kPopulateRead) == 0) {
  // Shuffled groups watch their writes by faults, too.
  if (checks_.guard || checks_.shuffle) install_traps();
}

std::string CpuExecutor::name() const {
  return concat("hostmetal (", cpu_name(), ", ", n_threads(), " threads)");
}

void* CpuExecutor::allocate(uint64_t bytes) {
  if (!checks_.guard) {
    void* range = map_range(bytes, PROT_READ | PROT_WRITE, 0);
    if (range) advise_huge(range, bytes);
    return range;
  }
  char* pages = static_cast<char*>(reserve(bytes));
  const uint64_t whole = align_up(bytes, page_bytes());
  if (!pages) return nullptr;
  if (mprotect(pages, whole, PROT_READ | PROT_WRITE) != 0) {
    free(pages, bytes);
    return nullptr;
  }
  const bool at_end = ((checks_.seed + n_allocated_++) & 1) == 0;
  return pages + (at_end ? whole - align_up(bytes, kBufferAlignment) : 0);
}

void CpuExecutor::free(void* address, uint64_t bytes) {
  if (!checks_.guard) {
    munmap(address, bytes);
    return;
  }
  const auto at = reinterpret_cast<uint64_t>(address);
  char* pages = static_cast<char*>(address) - at % page_bytes();
  munmap(pages - kGuardBytes, align_up(bytes, page_bytes()) + 2 * kGuardBytes);
}

void* CpuExecutor::reserve(uint64_t bytes) {
  const uint64_t guard = checks_.guard ? kGuardBytes : 0;
  const uint64_t whole = align_up(bytes, page_bytes()) + 2 * guard;
  void* pages = map_range(whole, PROT_NONE, MAP_NORESERVE);
  return pages ? static_cast<char*>(pages) + guard : nullptr;
}

int CpuExecutor::create_heap(uint64_t bytes) {
  const int heap = memfd_create("mtlqwen-heap", MFD_CLOEXEC);
  if (heap >= 0 && ftruncate(heap, static_cast<off_t>(bytes)) != 0) {
    close(heap);
    return -1;
  }
  return heap;
}

void CpuExecutor::destroy_heap(int heap) { close(heap); }

// Those that are there already stay as they are.
void CpuExecutor::bring(int heap, uint64_t offset, uint64_t bytes) {
  void* part =
      mmap(nullptr, bytes, PROT_READ, MAP_SHARED | MAP_POPULATE, heap, static_cast<off_t>(offset));
  if (part != MAP_FAILED) munmap(part, bytes);
}

bool CpuExecutor::map(void* address, uint64_t bytes, int heap, uint64_t offset) {
  const int populate = can_populate_ ? 0 : MAP_POPULATE;
  void* mapped = mmap(address, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED | populate,
                      heap, static_cast<off_t>(offset));
  if (mapped != MAP_FAILED) advise_huge(mapped, bytes);
  // A forked child must not write into its parent's heap.
  return mapped != MAP_FAILED && madvise(address, bytes, MADV_DONTFORK) == 0;
}

// By all threads, since pages that were never used are cleared here.
void CpuExecutor::populate(std::span<const std::span<char>> ranges) {
  if (!can_populate_) return;
  std::vector<std::span<char>> parts;
  for (std::span<char> rest : ranges) {
    while (!rest.empty()) {
      const std::span<char> part = rest.first(std::min(rest.size(), kPopulateUnit));
      parts.push_back(part);
      rest = rest.subspan(part.size());
    }
  }
  ThreadPool::Turn turn(pool_, n_threads());
  for (std::span<const std::span<char>> rest(parts); !rest.empty();) {
    const std::span<const std::span<char>> next = rest.first(std::min(rest.size(), kPopulateRun));
    rest = rest.subspan(next.size());
    auto populate_parts = [&](uint64_t first, uint64_t count) {
      for (const std::span<char> part : next.subspan(first, count)) {
        madvise(part.data(), part.size(), kPopulateRead);
      }
    };
    turn.yield();
    turn.run(next.size(), populate_parts);
  }
}

bool CpuExecutor::unmap(void* address, uint64_t bytes) {
  return mmap(address, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED,
              -1, 0) != MAP_FAILED;
}

std::string check_library(const MslLibrary* library, const std::string& isa) {
  if (library->abi_version != MSL_ABI_VERSION) {
    return concat("built for another version of this program (got ABI ", library->abi_version,
                  ", want ", MSL_ABI_VERSION, ")");
  }
  if (library->isa != isa) {
    return concat("built for another CPU (got ", library->isa, ", want ", isa, ")");
  }
  return {};
}

const MslLibrary* CpuExecutor::open_library(const std::string& path, std::string& error) {
  const Isa isa = choose_isa(read_environment().isa, cpu_levels());
  std::filesystem::path file = std::filesystem::absolute(path);
  file.replace_extension("." + isa.name + ".so");
  const auto fail = [&](const std::string& what) -> const MslLibrary* {
    error = concat("[hostmetal] ", file.string(), ": ", what);
    return nullptr;
  };
  std::error_code ignored;
  if (!std::filesystem::exists(file, ignored)) return fail("no such kernel library");
  void* handle = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!handle) return fail(dlerror());
  using Entry = const MslLibrary* (*)();
  const auto entry = reinterpret_cast<Entry>(dlsym(handle, "msl_library"));
  if (!entry) return fail("not a kernel library (no symbol msl_library)");
  const MslLibrary* library = entry();
  const std::string problem = check_library(library, isa.name);
  has_dot_ = isa.dot;
  return problem.empty() ? library : fail(problem);
}

namespace {

// Bytes of a copy or fill that one thread takes at a time.
constexpr uint64_t kCopyUnit = uint64_t{256} << 10;

uint64_t units_of(const Work& work) {
  if (work.kind != WorkKind::kLaunch) return ceil_div(work.bytes, kCopyUnit);
  const uint32_t* groups = work.dispatch.groups;
  return uint64_t{groups[0]} * groups[1] * groups[2];
}

enum class Twins : uint8_t { kNone, kPlain, kDot };

MslTwin twin_of(const MslKernel& kernel, Twins twins) {
  if (twins == Twins::kNone) return nullptr;
  return twins == Twins::kDot && kernel.dot_twin ? kernel.dot_twin : kernel.twin;
}

// A group as one row of units: those of its first work, then those of the second, and so on.
class GroupRun {
 public:
  // `starts` is scratch.
  GroupRun(std::span<const Work> group, const volatile uint32_t* abort, const HostChecks& checks,
           Twins twins, std::vector<uint64_t>& starts)
      : group_(group), abort_(abort), checks_(checks), twins_(twins), starts_(starts) {
    starts_.clear();
    for (const Work& work : group) {
      starts_.push_back(units_);
      units_ += units_of(work);
    }
  }

  [[nodiscard]] uint64_t units() const { return units_; }
  [[nodiscard]] RunResult take_result() { return std::move(result_); }

  void operator()(uint64_t first, uint64_t count) {
    const auto after = std::upper_bound(starts_.begin(), starts_.end(), first);
    auto index = static_cast<size_t>(after - starts_.begin()) - 1;
    while (count != 0) {
      const uint64_t end = index + 1 < starts_.size() ? starts_[index + 1] : units_;
      const uint64_t part = std::min(count, end - first);
      if (part != 0) run_part(index, first - starts_[index], part);
      first += part;
      count -= part;
      ++index;
    }
  }

 private:
  void run_part(size_t index, uint64_t first, uint64_t count) {
    if (stopped_.load(std::memory_order_relaxed)) return;
    if (__atomic_load_n(abort_, __ATOMIC_RELAXED) != 0)
      return stop({.status = MSL_ABORTED, .error = {}}, index);
    if (checks_.any()) return run_checked(index, first, count);
    RunResult result;
    run_units(index, first, count, result);
    if (result.status != MSL_OK) stop(std::move(result), index);
  }

  void run_units(size_t index, uint64_t first, uint64_t count, RunResult& result) const {
    const Work& work = group_[index];
    if (work.kind != WorkKind::kLaunch) {
      result.status = move_units(work, first, count);
      return;
    }
    if (const MslTwin twin = twin_of(*work.dispatch.kernel, twins_)) {
      result.status = twin(&work.dispatch, first, count);
      return;
    }
    char error[256] = "";
    result.status = work.library->run(&work.dispatch, first, count, error, sizeof error);
    if (result.status != MSL_OK) result.error = error;
  }

  // One threadgroup at a time: the seed of each is then its own, however the pool shares them out, and a fault has a place.
  void run_checked(size_t index, uint64_t first, uint64_t count) {
    std::vector<uint64_t> order(count);
    std::iota(order.begin(), order.end(), first);
    if (checks_.shuffle) {
      const uint64_t seed = (group_[index].dispatch.seed + first) * 0x9E3779B97F4A7C15U;
      std::ranges::shuffle(order, std::minstd_rand(static_cast<uint32_t>(seed >> 32)));
    }
    RunResult result;
    volatile uint64_t current = first;
    const std::function<void()> body = [&] {
      for (size_t i = 0; i < order.size() && result.status == MSL_OK; ++i) {
        current = order[i];
        run_units(index, order[i], 1, result);
      }
    };
    if (!checks_.guard) {
      body();
    } else if (!run_trapped(body, result.fault_address)) {
      result.status = MSL_FAILED;
      result.fault_threadgroup = current;
    }
    if (result.status != MSL_OK) stop(std::move(result), index);
  }

  [[nodiscard]] int move_units(const Work& work, uint64_t first, uint64_t count) const {
    for (uint64_t unit = first; unit < first + count; ++unit) {
      if (__atomic_load_n(abort_, __ATOMIC_RELAXED) != 0) return MSL_ABORTED;
      const uint64_t offset = unit * kCopyUnit;
      const uint64_t bytes = std::min(kCopyUnit, work.bytes - offset);
      char* destination = static_cast<char*>(work.destination) + offset;
      if (work.kind == WorkKind::kFill) {
        std::memset(destination, work.value, bytes);
      } else {
        std::memcpy(destination, static_cast<const char*>(work.source) + offset, bytes);
      }
    }
    return MSL_OK;
  }

  // The first to stop says why.
  void stop(RunResult result, size_t index) {
    if (stopped_.exchange(true)) return;
    result_ = std::move(result);
    result_.index = index;
  }

  std::span<const Work> group_;
  const volatile uint32_t* abort_;
  const HostChecks& checks_;
  const Twins twins_;
  std::vector<uint64_t>& starts_;  // the first unit of each work
  uint64_t units_ = 0;
  std::atomic<bool> stopped_{false};
  RunResult result_;
};

class CpuTurn final : public Executor::Turn {
 public:
  CpuTurn(ThreadPool& pool, unsigned n_threads, const HostChecks& checks, Twins twins)
      : turn_(pool, n_threads), checks_(checks), twins_(twins) {}

  RunResult run(std::span<const Work> group, const volatile uint32_t* abort) override {
    turn_.yield();
    GroupRun run(group, abort, checks_, twins_, starts_);
    turn_.run(run.units(), run);
    return run.take_result();
  }

 private:
  ThreadPool::Turn turn_;
  const HostChecks& checks_;  // the executor's
  const Twins twins_;
  std::vector<uint64_t> starts_;
};

}  // namespace

std::unique_ptr<Executor::Turn> CpuExecutor::take_turn() {
  const Twins twins = !has_twins_ ? Twins::kNone : has_dot_ ? Twins::kDot : Twins::kPlain;
  return std::make_unique<CpuTurn>(pool_, n_threads(), checks_, twins);
}

}  // namespace mtlqwen::hostmetal
