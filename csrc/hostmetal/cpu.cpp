#include "hostmetal/cpu.hpp"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <set>
#include <sstream>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "base/error.hpp"
#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>
#endif

namespace mtlqwen::hostmetal {
namespace {

#if defined(__x86_64__)
// Leaf 7, subleaf 1, bit 4 of eax; compilers of our minimum version have no name for it.
bool has_avx_vnni() {
  unsigned eax = 0;
  unsigned ebx = 0;
  unsigned ecx = 0;
  unsigned edx = 0;
  return __get_cpuid_count(7, 1, &eax, &ebx, &ecx, &edx) != 0 && (eax >> 4 & 1) != 0;
}
#endif

std::string first_line(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

// The path of this process in the unified hierarchy, or in that of one v1 controller.
std::string cgroup_path(const std::string& controller) {
  std::ifstream file("/proc/self/cgroup");
  for (std::string line; std::getline(file, line);) {
    const size_t first = line.find(':');
    const size_t second = line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string names = line.substr(first + 1, second - first - 1);
    const std::string controllers = concat(',', names, ',');
    const bool found = controller.empty()
                           ? names.empty()
                           : controllers.find(concat(',', controller, ',')) != std::string::npos;
    if (found) return line.substr(second + 1);
  }
  return {};
}

// The smallest quota on the way from this process's group up to the root; 0 without one.
template <class ReadQuota>
unsigned smallest_quota(std::string path, const ReadQuota& read_quota) {
  unsigned smallest = 0;
  while (true) {
    const unsigned cores = read_quota(path == "/" ? std::string() : path);
    if (cores != 0 && (smallest == 0 || cores < smallest)) smallest = cores;
    const size_t slash = path.rfind('/');
    if (path.empty() || path == "/" || slash == std::string::npos) return smallest;
    path.resize(slash);
  }
}

unsigned cgroup_cores() {
  const unsigned unified = smallest_quota(cgroup_path(""), [](const std::string& path) {
    return quota_cores(first_line("/sys/fs/cgroup" + path + "/cpu.max"));
  });
  if (unified != 0) return unified;
  return smallest_quota(cgroup_path("cpu"), [](const std::string& path) {
    const std::string folder = "/sys/fs/cgroup/cpu" + path;
    return quota_cores(first_line(folder + "/cpu.cfs_quota_us") + " " +
                       first_line(folder + "/cpu.cfs_period_us"));
  });
}

}  // namespace

CpuLevels cpu_levels() {
#if defined(__x86_64__)
  __builtin_cpu_init();
  return {.avx2 = __builtin_cpu_supports("x86-64-v3") != 0,
          .avx_vnni = has_avx_vnni(),
          .avx512 = __builtin_cpu_supports("x86-64-v4") != 0,
          .avx512_vnni = __builtin_cpu_supports("avx512vnni") != 0};
#elif defined(__aarch64__)
  return {.neon = true};
#else
  return {};
#endif
}

Isa choose_isa(const std::string& wanted, const CpuLevels& levels) {
  struct Choice {
    std::string_view name;
    Isa isa;
    bool has;
  };
  const std::array<Choice, 5> choices{{
      {"avx512+vnni", {"avx512", true}, levels.avx512 && levels.avx512_vnni},
      {"avx512", {"avx512", false}, levels.avx512},
      {"avx2+vnni", {"avx2", true}, levels.avx2 && levels.avx_vnni},
      {"avx2", {"avx2", false}, levels.avx2},
      {"neon", {"neon", false}, levels.neon},
  }};
  const auto best = std::ranges::find_if(choices, &Choice::has);
  if (best == choices.end()) {
    throw DeviceError(
        "[hostmetal] cpu: no supported instruction set (want x86-64 with AVX2, FMA and F16C, or "
        "aarch64); run on a newer machine");
  }
  if (wanted.empty()) return best->isa;
  const auto found = std::ranges::find(choices, wanted, &Choice::name);
  if (found == choices.end()) {
    throw DeviceError(concat("[hostmetal] MTLQWEN_HOST_ISA: unknown value (got '", wanted,
                             "', want avx2, avx2+vnni, avx512, avx512+vnni or neon); "
                             "correct or unset it"));
  }
  if (!found->has) {
    throw DeviceError(concat("[hostmetal] MTLQWEN_HOST_ISA: this CPU lacks it (got ", wanted,
                             ", want at most ", best->name, "); correct or unset it"));
  }
  return found->isa;
}

unsigned quota_cores(const std::string& cpu_max) {
  std::istringstream words(cpu_max);
  long long quota = 0;
  long long period = 0;
  if (!(words >> quota >> period) || quota <= 0 || period <= 0) return 0;
  return static_cast<unsigned>(std::min((quota + period - 1) / period, 1'000'000LL));
}

namespace {

// Empty where the kernel does not say: on machines with more CPUs than the set holds.
std::vector<unsigned> cpus_of_mask() {
  cpu_set_t set;
  CPU_ZERO(&set);
  std::vector<unsigned> cpus;
  if (sched_getaffinity(0, sizeof set, &set) != 0) return cpus;
  for (unsigned cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(cpu, &set)) cpus.push_back(cpu);
  }
  return cpus;
}

unsigned within_quota(unsigned n) {
  const unsigned quota = cgroup_cores();
  return std::max(quota == 0 ? n : std::min(n, quota), 1U);
}

std::string siblings_of(unsigned cpu) {
  return first_line(concat("/sys/devices/system/cpu/cpu", cpu, "/topology/thread_siblings_list"));
}

}  // namespace

unsigned usable_cpus() {
  const size_t n = cpus_of_mask().size();
  return within_quota(n != 0 ? static_cast<unsigned>(n) : std::thread::hardware_concurrency());
}

unsigned count_cores(std::span<const unsigned> cpus,
                     const std::function<std::string(unsigned)>& siblings) {
  std::set<std::string> cores;
  unsigned n_unknown = 0;
  for (const unsigned cpu : cpus) {
    std::string core = siblings(cpu);
    if (core.empty()) {
      ++n_unknown;
    } else {
      cores.insert(std::move(core));
    }
  }
  return static_cast<unsigned>(cores.size()) + n_unknown;
}

unsigned usable_cores() {
  const std::vector<unsigned> cpus = cpus_of_mask();
  return cpus.empty() ? usable_cpus() : within_quota(count_cores(cpus, siblings_of));
}

uint64_t physical_memory() {
  return static_cast<uint64_t>(sysconf(_SC_PHYS_PAGES)) *
         static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
}

std::string cpu_name() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    const size_t colon = line.find(": ");
    if (line.starts_with("model name") && colon != std::string::npos) return line.substr(colon + 2);
  }
  return "CPU";
}

namespace {

uint64_t float_control() {
#if defined(__x86_64__)
  return _mm_getcsr();
#elif defined(__aarch64__)
  uint64_t control = 0;
  asm volatile("mrs %0, fpcr" : "=r"(control));
  return control;
#else
  return 0;
#endif
}

void set_float_control(uint64_t control) {
#if defined(__x86_64__)
  _mm_setcsr(static_cast<unsigned>(control));
#elif defined(__aarch64__)
  asm volatile("msr fpcr, %0" : : "r"(control));
#else
  static_cast<void>(control);
#endif
}

#if defined(__x86_64__)
constexpr uint64_t kFlush = 1U << 15 | 1U << 6;  // results, operands
#else
constexpr uint64_t kFlush = uint64_t{1} << 24;
#endif

}  // namespace

void flush_denormals() { set_float_control(float_control() | kFlush); }

DenormalsFlushed::DenormalsFlushed() : before_(float_control()) { flush_denormals(); }
DenormalsFlushed::~DenormalsFlushed() { set_float_control(before_); }

}  // namespace mtlqwen::hostmetal
