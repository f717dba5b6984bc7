// hostmetal: libraries, pipelines and their constants, the thread pool, the CPU it runs on.
#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <random>
#include <thread>
#include <vector>

#include "base/error.hpp"
#include "check.hpp"
#include "host_machine.hpp"
#include "hostmetal/cpu.hpp"
#include "hostmetal/executor_cpu.hpp"
#include "hostmetal/mapping_runs.hpp"
#include "hostmetal/thread_pool.hpp"

namespace mtlqwen::testing {
namespace {

namespace fs = std::filesystem;
using Encoder = MTL4::ComputeCommandEncoder*;

fs::path kernel_library;  // the program's first argument; may be missing

NS::SharedPtr<MTL::FunctionConstantValues> constants(float scale, int32_t offset) {
  auto values = NS::TransferPtr(MTL::FunctionConstantValues::alloc()->init());
  values->setConstantValue(&scale, MTL::DataTypeFloat, 3);
  values->setConstantValue(&offset, MTL::DataTypeInt, 5);
  return values;
}

void test_constants_must_be_given_and_fit() {
  const Machine machine;
  std::string error;
  check(!machine.pipeline("scale", nullptr, &error));
  check(contains(error, "kernel scale: function constant 3 (kScale) has no value"));
  const auto values = constants(1.0F, 2);
  const float wrong = 2.0F;
  values->setConstantValue(&wrong, MTL::DataTypeFloat, 5);
  check(!machine.pipeline("scale", values.get(), &error));
  check(contains(error, "function constant 5 (kOffset)") && contains(error, "got float, want int"));
  const bool unused = true;
  const auto right = constants(1.0F, 2);
  right->setConstantValue(&unused, MTL::DataTypeBool, 60);
  check(machine.pipeline("scale", right.get()).get() != nullptr);
  check(!machine.pipeline("no_such_kernel", nullptr, &error));
  check(contains(error, "kernel no_such_kernel: not in the library fake"));
}

void test_a_pipeline_keeps_its_constants() {
  Machine machine;
  const auto in = machine.buffer(4, "in");
  const auto out = machine.buffer(4, "out");
  *static_cast<float*>(in->contents()) = 10.0F;
  const auto values = constants(2.0F, 1);
  const auto pipeline = machine.pipeline("scale", values.get());
  const float other = 100.0F;
  values->setConstantValue(&other, MTL::DataTypeFloat, 3);
  check_equal(machine
                  .run([&](Encoder encoder) {
                    machine.dispatch(encoder, pipeline.get(), {out->gpuAddress(), in->gpuAddress()},
                                     1);
                  })
                  .error,
              "");
  check_equal(*static_cast<float*>(out->contents()), 21.0F);
  values->reset();
  check(!machine.pipeline("scale", values.get()));
}

// Two pipelines of one kernel, two devices, two threads.
void test_constants_do_not_mix() {
  const auto work = [](float scale, bool& right) {
    Machine machine;
    const auto in = machine.buffer(4 * 256, "in");
    const auto out = machine.buffer(4 * 256, "out");
    const auto pipeline = machine.pipeline("scale", constants(scale, 0).get());
    std::fill_n(static_cast<float*>(in->contents()), 256, 1.0F);
    right = true;
    for (int i = 0; i < 200; ++i) {
      machine.run([&](Encoder encoder) {
        machine.dispatch(encoder, pipeline.get(), {out->gpuAddress(), in->gpuAddress()}, 256);
      });
      const auto* values = static_cast<float*>(out->contents());
      right = right && std::all_of(values, values + 256, [&](float v) { return v == scale; });
    }
  };
  bool right[2] = {false, false};
  std::thread first(work, 3.0F, std::ref(right[0]));
  std::thread second(work, 5.0F, std::ref(right[1]));
  first.join();
  second.join();
  check(right[0] && right[1]);
}

void test_library_and_device_tell_what_they_have() {
  const Machine machine;
  const NS::Array* names = machine.library->functionNames();
  check_equal(names->count(), fake_library()->n_kernels);
  check_equal(std::string(names->object<NS::String>(0)->utf8String()), "empty");
  const auto function = NS::TransferPtr(machine.library->newFunction(ns("count")));
  check_equal(std::string(function->name()->utf8String()), "count");
  check(machine.library->newFunction(ns("nothing")) == nullptr);
  check(machine.device->supportsFamily(MTL::GPUFamilyMetal4));
  check(!machine.device->supportsFamily(MTL::GPUFamilyApple10));
  check_equal(machine.device->sparseTileSizeInBytes(MTL::SparsePageSize256), 256U << 10);
  check_equal(machine.device->maxThreadgroupMemoryLength(), 32'768U);
  check(contains(machine.device->name()->utf8String(), "hostmetal"));
  check_equal(machine.pipeline("count")->maxTotalThreadsPerThreadgroup(), 1024U);
}

std::string load_error(const Machine& machine, const fs::path& path) {
  NS::Error* error = nullptr;
  const NS::URL* url = NS::URL::fileURLWithPath(ns(path.c_str()));
  const auto library = NS::TransferPtr(machine.device->newLibrary(url, &error));
  check(!library == (error != nullptr));
  return error ? error->localizedDescription()->utf8String() : "";
}

void test_libraries_that_are_none() {
  const Machine machine;
  const std::string isa = hostmetal::choose_isa("", hostmetal::cpu_levels()).name;
  const fs::path folder = fs::temp_directory_path() / ("mtlqwen-" + std::to_string(getpid()));
  fs::create_directory(folder);
  const fs::path path = folder / "kernels.metallib";
  check(contains(load_error(machine, path), "no such kernel library"));
  check(contains(load_error(machine, path), "kernels." + isa + ".so"));
  const fs::path file = folder / ("kernels." + isa + ".so");
  std::ofstream(file) << "not a shared object";
  check(!load_error(machine, path).empty());
  fs::remove_all(folder);
  check(contains(load_error(machine, ""), "no path"));
  MslLibrary table = *fake_library();
  check_equal(hostmetal::check_library(&table, "avx2"), "");
  check(contains(hostmetal::check_library(&table, "avx512"), "got avx2, want avx512"));
  table.abi_version = MSL_ABI_VERSION + 1;
  check(contains(hostmetal::check_library(&table, "avx2"), "another version"));
}

void test_the_real_library_loads() {
  if (!fs::exists(kernel_library.parent_path())) return;
  const Machine machine;
  check_equal(load_error(machine, kernel_library), "");
}

void test_isa_is_chosen_by_cpu_and_environment() {
  using hostmetal::choose_isa;
  using hostmetal::Isa;
  const hostmetal::CpuLevels old_cpu;
  const hostmetal::CpuLevels avx2{.avx2 = true};
  const hostmetal::CpuLevels avx512{.avx2 = true, .avx512 = true};
  const hostmetal::CpuLevels vnni{
      .avx2 = true, .avx_vnni = true, .avx512 = true, .avx512_vnni = true};
  const hostmetal::CpuLevels neon{.neon = true};
  check(choose_isa("", avx2) == Isa{"avx2", false});
  check(choose_isa("", avx512) == Isa{"avx512", false});
  check(choose_isa("", vnni) == Isa{"avx512", true});
  check(choose_isa("avx512", vnni) == Isa{"avx512", false});
  check(choose_isa("avx2+vnni", vnni) == Isa{"avx2", true});
  check(choose_isa("avx2", avx512) == Isa{"avx2", false});
  check(choose_isa("", neon) == Isa{"neon", false});
  check_throws<DeviceError>([&] { (void)choose_isa("avx512+vnni", avx512); }, "this CPU lacks it");
  check_throws<DeviceError>([&] { (void)choose_isa("", old_cpu); }, "AVX2");
  check_throws<DeviceError>([&] { (void)choose_isa("avx512", avx2); }, "this CPU lacks it");
  check_throws<DeviceError>([&] { (void)choose_isa("avx2", neon); }, "this CPU lacks it");
  check_throws<DeviceError>([&] { (void)choose_isa("AVX2", avx512); }, "got 'AVX2'");
  setenv("MTLQWEN_HOST_ISA", "sse9", 1);
  check_throws<DeviceError>(require_machine, "sse9");
  check(contains(load_error(Machine(), "kernels.metallib"), "sse9"));
  unsetenv("MTLQWEN_HOST_ISA");
  require_machine();
  setenv("MTLQWEN_HOST_KERNELS", "fast", 1);
  check_throws<DeviceError>([] { (void)hostmetal::read_environment(); }, "MTLQWEN_HOST_KERNELS");
  for (const char* kernels : {"", "auto", "msl"}) {
    setenv("MTLQWEN_HOST_KERNELS", kernels, 1);
    check_equal(prefers_int16(Machine().device.get()), std::string(kernels) != "msl");
  }
  unsetenv("MTLQWEN_HOST_KERNELS");
  check(is_software_device(Machine().device.get()));
}

void test_pool_threads_flush_denormals() {
  Machine machine;
  const auto denormal = machine.pipeline("denormal");
  const auto out = machine.buffer(4 * 64, "out");
  std::fill_n(static_cast<float*>(out->contents()), 64, 1.0F);
  check_equal(machine
                  .run([&](Encoder encoder) {
                    machine.dispatch(encoder, denormal.get(), {out->gpuAddress()}, 64);
                  })
                  .error,
              "");
  const auto* bits = static_cast<uint32_t*>(out->contents());
  check_equal(std::accumulate(bits, bits + 64, uint64_t{0}), 0U);
  const volatile float tiny = 1e-40F;
  check(tiny * 1.0F != 0.0F);  // this thread is the caller's own
}

// Mapping runs against a plain array, one entry for each tile.
void test_mapping_runs_match_a_table() {
  constexpr uint64_t kTiles = 40;
  const std::vector<std::shared_ptr<hostmetal::Memory>> heaps(1);
  std::mt19937 random(7);
  hostmetal::MappingRuns runs;
  std::vector<uint64_t> table(kTiles, 0);  // heap tile + 1
  for (int round = 0; round < 3000; ++round) {
    const uint64_t first = random() % kTiles;
    const uint64_t n = 1 + random() % (kTiles - first);
    const bool maps = random() % 2 == 0;
    const uint64_t heap_tile = random() % 4 == 0 ? random() % 100 : first;
    if (maps) {
      runs.map(first, {.n_tiles = n, .heap = heaps[0], .heap_tile = heap_tile});
    } else {
      runs.unmap(first, n);
    }
    for (uint64_t i = 0; i < n; ++i) table[first + i] = maps ? heap_tile + i + 1 : 0;
    uint64_t regions = 1;
    uint64_t n_runs = table[0] != 0;
    for (uint64_t i = 1; i < kTiles; ++i) {
      const bool continues =
          table[i] == 0 ? table[i - 1] == 0 : table[i - 1] != 0 && table[i] == table[i - 1] + 1;
      regions += !continues;
      n_runs += !continues && table[i] != 0;
    }
    check_equal(runs.n_regions(kTiles), regions);
    check_equal(runs.n_runs(), n_runs);
    const uint64_t n_mapped = kTiles - static_cast<uint64_t>(std::ranges::count(table, 0U));
    check_equal(runs.heaps().empty() ? 0 : runs.heaps()[0].second, n_mapped);
    const auto begin = table.begin() + static_cast<ptrdiff_t>(first);
    check_equal(runs.is_mapped(first, n), std::all_of(begin, begin + static_cast<ptrdiff_t>(n),
                                                      [](uint64_t t) { return t; }));
  }
}

}  // namespace
}  // namespace mtlqwen::testing

int main(int argc, char** argv) {
  using namespace mtlqwen::testing;
  if (argc > 1) kernel_library = argv[1];
  return run({
      {"constants_must_be_given_and_fit", test_constants_must_be_given_and_fit},
      {"a_pipeline_keeps_its_constants", test_a_pipeline_keeps_its_constants},
      {"constants_do_not_mix", test_constants_do_not_mix},
      {"library_and_device_tell_what_they_have", test_library_and_device_tell_what_they_have},
      {"libraries_that_are_none", test_libraries_that_are_none},
      {"the_real_library_loads", test_the_real_library_loads},
      {"isa_is_chosen_by_cpu_and_environment", test_isa_is_chosen_by_cpu_and_environment},
      {"pool_threads_flush_denormals", test_pool_threads_flush_denormals},
      {"mapping_runs_match_a_table", test_mapping_runs_match_a_table},
  });
}
