// MTLQWEN_HOST_CHECK=poison,guard,residency: one planted violation for each thing that they find, found under its right
// name, and the same commands done right, with nothing found.
#include <unistd.h>

#include <cstring>
#include <functional>
#include <thread>

#include "base/error.hpp"
#include "check.hpp"
#include "checked_machine.hpp"
#include "hostmetal/environment.hpp"

namespace mtlqwen::testing {
namespace {

using Encoder = MTL4::ComputeCommandEncoder*;
using hostmetal::HostChecks;
using hostmetal::read_environment;

void test_words_are_parsed() {
  check(!read_environment().checks.any());
  {
    const Environment set("guard,poison", "18446744073709551615");
    const HostChecks checks = read_environment().checks;
    check(checks.guard && checks.poison && !checks.shuffle && !checks.residency);
    check_equal(checks.seed, ~uint64_t{0});
  }
  for (const char* words : {"gard", "shuffle,,poison", "shuffle poison", "SHUFFLE", "all"}) {
    const Environment set(words);
    check_throws<DeviceError>([] { static_cast<void>(read_environment()); },
                              "want shuffle, poison, guard or residency");
    check_throws<DeviceError>(require_machine, "MTLQWEN_HOST_CHECK");
  }
  for (const char* seed : {"x", "-1", "1 ", "18446744073709551616"}) {
    const Environment set("shuffle", seed);
    check_throws<DeviceError>([] { static_cast<void>(read_environment()); }, "MTLQWEN_HOST_SEED");
  }
}

void test_memory_starts_poisoned() {
  Numbers numbers("poison");
  Machine& machine = numbers.machine;
  const auto fresh = NS::TransferPtr(machine.device->newBuffer(4096, kPrivate));
  machine.make_resident(fresh.get());
  const auto sparse = machine.sparse_buffer(2, "kv");
  const auto heap = machine.heap(1, "heap");
  machine.map(sparse.get(), heap.get(), 0, 1, 0);
  const auto load = [&](uint64_t from) {
    check_equal(machine
                    .run([&](Encoder encoder) {
                      see_mappings(encoder);
                      machine.dispatch(encoder, numbers.copy.get(),
                                       {numbers.out->gpuAddress(), from}, 1);
                    })
                    .error,
                "");
    return static_cast<uint32_t*>(numbers.out->contents())[0];
  };
  check_equal(load(fresh->gpuAddress() + 4092), ~0U);
  check_equal(load(sparse->gpuAddress() + kTile - 4), ~0U);
  // What was written stays: another mapping of the tile is not a fresh one.
  check_equal(machine
                  .run([&](Encoder encoder) {
                    machine.dispatch(encoder, numbers.copy.get(),
                                     {sparse->gpuAddress(), numbers.in->gpuAddress()}, 1);
                  })
                  .error,
              "");
  machine.map(sparse.get(), nullptr, 0, 1, 0);
  machine.map(sparse.get(), heap.get(), 1, 1, 0);
  check_equal(load(sparse->gpuAddress() + kTile), 0U);
  // Shared memory is cleared, as the host may read it at once.
  check_equal(static_cast<uint32_t*>(machine.buffer(64, "shared")->contents())[0], 0U);
}

void test_an_overrun_is_named() {
  for (uint64_t seed = 0; seed < kSeeds; ++seed) {
    Numbers numbers("guard", seed);
    const auto run = [&](uint64_t to, uint64_t groups) {
      return numbers.machine
          .run([&](Encoder encoder) {
            numbers.machine.dispatch(encoder, numbers.copy.get(), {to, numbers.in->gpuAddress()},
                                     groups);
          })
          .error;
    };
    const uint64_t out = numbers.out->gpuAddress();
    check_equal(out % 256, 0U);
    check_equal(run(out + Numbers::kBytes - 16, 4), "");
    // Within the page, which no guard page catches.
    check_contains(run(out + Numbers::kBytes - 4, 2), "kernel copy_word: buffer 'out' was overrun");
    check_equal(numbers.machine.run([](Encoder) {}).error, "");
  }
}

void test_a_fault_names_kernel_threadgroup_and_buffer() {
  for (uint64_t seed = 0; seed < kSeeds; ++seed) {
    Numbers numbers("guard", seed);
    const auto page = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
    const auto whole = numbers.machine.buffer(page, "whole");
    const auto run = [&](const char* kernel, uint64_t address, uint64_t groups) {
      const auto pipeline = numbers.machine.pipeline(kernel);
      return numbers.machine
          .run([&](Encoder encoder) {
            numbers.machine.dispatch(encoder, pipeline.get(), {address, numbers.in->gpuAddress()},
                                     groups);
          })
          .error;
    };
    check_contains(run("copy_word", whole->gpuAddress() + page - 8, 3),
                   "kernel copy_word: threadgroup (2, 0, 0) touched 0 bytes past the end of buffer "
                   "'whole'");
    check_contains(run("copy_back", whole->gpuAddress(), 3), "in front of buffer 'whole'");
    check_contains(run("copy_nowhere", whole->gpuAddress(), 1), "in no buffer");
    check_equal(run("copy_word", whole->gpuAddress() + page - 8, 2), "");
    check_equal(static_cast<uint32_t*>(whole->contents())[page / 4 - 1], 0U);
  }
}

void test_an_unmapped_tile_is_named() {
  Numbers numbers("guard");
  Machine& machine = numbers.machine;
  const auto sparse = machine.sparse_buffer(4, "kv");
  const auto heap = machine.heap(2, "heap");
  machine.map(sparse.get(), heap.get(), 0, 2, 0);
  const auto run = [&](uint64_t offset) {
    return machine
        .run([&](Encoder encoder) {
          see_mappings(encoder);
          machine.dispatch(encoder, numbers.copy.get(),
                           {sparse->gpuAddress() + offset, numbers.in->gpuAddress()}, 2);
        })
        .error;
  };
  check_equal(run(2 * kTile - 8), "");
  check_contains(run(2 * kTile - 4),
                 "kernel copy_word: threadgroup (1, 0, 0) touched unmapped sparse tile 2 of sparse "
                 "buffer 'kv', byte 131072");
  check_contains(run(3 * kTile), "touched unmapped sparse tile 3");
  check_equal(run(0), "");
}

void test_denormals_stay_flushed_after_a_fault() {
  Numbers numbers("guard");
  const auto nowhere = numbers.machine.pipeline("copy_nowhere");
  const auto denormal = numbers.machine.pipeline("denormal");
  for (int i = 0; i < 8; ++i) {
    check(!numbers.machine
               .run([&](Encoder encoder) {
                 numbers.machine.dispatch(encoder, nowhere.get(), {numbers.out->gpuAddress()}, 64);
               })
               .error.empty());
  }
  const auto products = numbers.machine.buffer(4 * 256, "products");
  std::memset(products->contents(), 0xFF, 4 * 256);
  check_equal(numbers.machine
                  .run([&](Encoder encoder) {
                    numbers.machine.dispatch(encoder, denormal.get(), {products->gpuAddress()},
                                             256);
                  })
                  .error,
              "");
  for (int i = 0; i < 256; ++i) {
    check_equal(static_cast<uint32_t*>(products->contents())[i], 0U);
  }
}

// Runs `meanwhile` on another thread while a kernel uses `buffer`.
Outcome run_with(Numbers& numbers, const MTL::Buffer* buffer,
                 const std::function<void()>& meanwhile) {
  const auto hold = numbers.machine.pipeline("hold");
  auto* gate = static_cast<uint32_t*>(numbers.in->contents());
  __atomic_store_n(gate, 0, __ATOMIC_RELEASE);
  std::thread other([&] {
    while (__atomic_load_n(gate, __ATOMIC_ACQUIRE) == 0) std::this_thread::yield();
    meanwhile();
    __atomic_store_n(gate, 2, __ATOMIC_RELEASE);
  });
  const Outcome outcome = numbers.machine.run([&](Encoder encoder) {
    see_mappings(encoder);
    numbers.machine.dispatch(encoder, hold.get(), {numbers.in->gpuAddress(), buffer->gpuAddress()},
                             1);
  });
  other.join();
  return outcome;
}

void test_residency_is_kept_until_the_end() {
  Numbers numbers("residency");
  const MTL::Buffer* out = numbers.out.get();
  MTL::ResidencySet* resident = numbers.machine.resident.get();
  check_equal(run_with(numbers, out, [] {}).error, "");
  // Another member may go.
  const auto other = numbers.machine.buffer(64, "other");
  check_equal(run_with(numbers, out,
                       [&] {
                         resident->removeAllocation(other.get());
                         resident->commit();
                       })
                  .error,
              "");
  const Outcome outcome = run_with(numbers, out, [&] {
    resident->removeAllocation(out);
    resident->commit();
  });
  check_contains(outcome.error,
                 "kernel hold: buffer 'out' left its residency set while the command buffer ran");
}

void test_memory_is_kept_until_the_end() {
  Numbers numbers("residency");
  const auto heap = numbers.machine.heap(1, "heap");
  const auto sparse = numbers.machine.sparse_buffer(1, "kv");
  numbers.machine.map(sparse.get(), heap.get(), 0, 1, 0);
  check_equal(run_with(numbers, sparse.get(), [] {}).error, "");
  const Outcome of_heap = run_with(numbers, sparse.get(), [&] {
    numbers.machine.resident->removeAllocation(heap.get());
    numbers.machine.resident->commit();
  });
  check_contains(of_heap.error,
                 "sparse buffer 'kv': heap 'heap', mapped there, left its residency");
  const MTL::Buffer* out = numbers.out.get();
  const Outcome released = run_with(numbers, out, [&] { numbers.out.reset(); });
  check_contains(released.error, "buffer 'out' was released while the command buffer ran");
}

}  // namespace
}  // namespace mtlqwen::testing

int main() {
  using namespace mtlqwen::testing;
  return run({{"words are parsed", test_words_are_parsed},
              {"memory starts poisoned", test_memory_starts_poisoned},
              {"an overrun is named", test_an_overrun_is_named},
              {"a fault names kernel, threadgroup and buffer",
               test_a_fault_names_kernel_threadgroup_and_buffer},
              {"an unmapped tile is named", test_an_unmapped_tile_is_named},
              {"denormals stay flushed after a fault", test_denormals_stay_flushed_after_a_fault},
              {"residency is kept until the end", test_residency_is_kept_until_the_end},
              {"memory is kept until the end", test_memory_is_kept_until_the_end}});
}
