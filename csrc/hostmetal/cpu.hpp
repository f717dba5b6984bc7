// What the CPU and the process have: instruction sets, cores, memory.
#pragma once
#include <cstdint>
#include <functional>
#include <span>
#include <string>

namespace mtlqwen::hostmetal {

// The instruction sets that kernel libraries are built for, as one machine has them.
struct CpuLevels {
  bool avx2 = false;         // x86-64-v3
  bool avx_vnni = false;     // int16 dot products beside AVX2
  bool avx512 = false;       // x86-64-v4
  bool avx512_vnni = false;  // int16 dot products beside AVX-512
  bool neon = false;         // every aarch64
};

// A kernel library, and whether its twins for int16 dot products can run.
struct Isa {
  std::string name;  // "avx2", "avx512", "neon"
  bool dot = false;
  bool operator==(const Isa&) const = default;
};

[[nodiscard]] CpuLevels cpu_levels();

// What to load: `wanted` ("avx2", "avx2+vnni", ..: docs/environment.md), or the best where that is empty. Throws
// DeviceError where the CPU has no library or not the wanted one, or `wanted` is none of the names.
[[nodiscard]] Isa choose_isa(const std::string& wanted, const CpuLevels& levels);

// CPUs that this process may use: its affinity mask, and what its control groups grant it.
[[nodiscard]] unsigned usable_cpus();
// The same with the hardware threads of one core counted once: more threads than that win nothing where each keeps a core's
// vector units busy.
[[nodiscard]] unsigned usable_cores();
// How many cores the CPUs lie in. siblings(cpu) names all CPUs of its core in words of the kernel ("0,4"), or is empty.
[[nodiscard]] unsigned count_cores(std::span<const unsigned> cpus,
                                   const std::function<std::string(unsigned)>& siblings);
// Cores of a cgroup v2 `cpu.max` ("200000 100000" is 2), rounded up; 0 where it sets no limit.
[[nodiscard]] unsigned quota_cores(const std::string& cpu_max);

// Bytes of physical memory.
[[nodiscard]] uint64_t physical_memory();

[[nodiscard]] std::string cpu_name();

// Makes float denormals zero on the calling thread, inputs and results, as Apple GPUs do.
void flush_denormals();
// The same for a while, on a thread that is not ours.
class DenormalsFlushed {
 public:
  DenormalsFlushed();
  ~DenormalsFlushed();
  DenormalsFlushed(const DenormalsFlushed&) = delete;
  DenormalsFlushed& operator=(const DenormalsFlushed&) = delete;

 private:
  uint64_t before_ = 0;
};

// A hint to the core that this thread spins.
inline void spin_pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

}  // namespace mtlqwen::hostmetal
