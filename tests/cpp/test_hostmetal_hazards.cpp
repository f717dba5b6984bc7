// MTLQWEN_HOST_CHECK=shuffle: works that need a barrier between them are found and named, and a group that needs none is left
// in peace.
#include <cstring>

#include "check.hpp"
#include "checked_machine.hpp"

namespace mtlqwen::testing {
namespace {

using Encoder = MTL4::ComputeCommandEncoder*;

// Copies four words of `in` to `out`, then four words from an address to behind them.
Outcome copy_twice(Numbers& numbers, bool with_barrier, uint64_t from_second) {
  std::memset(numbers.out->contents(), 0, Numbers::kBytes);
  for (uint64_t i = 0; i < Numbers::kBytes / 4; ++i)
    static_cast<uint32_t*>(numbers.in->contents())[i] = 7;
  return numbers.machine.run([&](Encoder encoder) {
    numbers.machine.dispatch(encoder, numbers.copy.get(),
                             {numbers.out->gpuAddress(), numbers.in->gpuAddress()}, 4);
    if (with_barrier) barrier(encoder);
    numbers.machine.dispatch(encoder, numbers.copy.get(),
                             {numbers.out->gpuAddress() + 64, from_second}, 4);
  });
}

void test_a_missing_barrier_is_found() {
  for (uint64_t seed = 0; seed < kSeeds; ++seed) {
    Numbers numbers("shuffle", seed);
    const uint64_t out = numbers.out->gpuAddress();
    check_equal(copy_twice(numbers, true, out).error, "");
    check_equal(static_cast<uint32_t*>(numbers.out->contents())[19], 7U);
    check_equal(copy_twice(numbers, false, numbers.in->gpuAddress()).error, "");
    check_equal(static_cast<uint32_t*>(numbers.out->contents())[19], 7U);
    const std::string error = copy_twice(numbers, false, out).error;
    check_contains(error, "kernel copy_word: depends on what kernel copy_word writes at buffer "
                          "'out', byte ");
    check_contains(error, "no barrier orders the two");
    check_contains(error, "(MTLQWEN_HOST_SEED=" + std::to_string(seed) + ")");
  }
}

void test_the_byte_in_between_is_named() {
  Numbers numbers("shuffle");
  // Only the word at 12 of what the first writes is read by the second.
  const Outcome outcome = numbers.machine.run([&](Encoder encoder) {
    numbers.machine.dispatch(encoder, numbers.copy.get(),
                             {numbers.out->gpuAddress(), numbers.in->gpuAddress()}, 4);
    numbers.machine.dispatch(encoder, numbers.copy.get(),
                             {numbers.out->gpuAddress() + 64, numbers.out->gpuAddress() + 12}, 1);
  });
  check_equal(outcome.error, "");  // both are zeros: nothing depends on anything yet
  static_cast<uint32_t*>(numbers.in->contents())[3] = 0x100;
  const Outcome again = numbers.machine.run([&](Encoder encoder) {
    numbers.machine.dispatch(encoder, numbers.copy.get(),
                             {numbers.out->gpuAddress(), numbers.in->gpuAddress()}, 4);
    numbers.machine.dispatch(encoder, numbers.copy.get(),
                             {numbers.out->gpuAddress() + 64, numbers.out->gpuAddress() + 12}, 1);
  });
  check_contains(again.error, "writes at buffer 'out', byte 13,");
}

void test_two_writers_of_one_byte_are_found() {
  Numbers numbers("shuffle");
  const auto count = numbers.machine.pipeline("count");
  const auto twice = [&](uint64_t second) {
    return numbers.machine.run([&](Encoder encoder) {
      numbers.machine.dispatch(encoder, count.get(), {numbers.out->gpuAddress()}, 4);
      numbers.machine.dispatch(encoder, count.get(), {second}, 4);
    });
  };
  check_equal(twice(numbers.out->gpuAddress() + 16).error, "");  // they add in place, side by side
  check_equal(static_cast<uint32_t*>(numbers.out->contents())[7], 1U);
  check_contains(twice(numbers.out->gpuAddress() + 12).error,
                 "kernel count: writes what kernel count writes at buffer 'out', byte 12,");
}

void test_copies_and_fills_take_part() {
  Numbers numbers("shuffle");
  std::memset(numbers.in->contents(), 5, Numbers::kBytes);
  const auto run = [&](bool with_barrier) {
    return numbers.machine.run([&](Encoder encoder) {
      encoder->fillBuffer(numbers.out.get(), NS::Range(0, 16), 9);
      if (with_barrier) barrier(encoder);
      encoder->copyFromBuffer(numbers.out.get(), 0, numbers.in.get(), 32, 16);
    });
  };
  check_contains(run(false).error, "copy: depends on what fill writes at buffer 'out', byte ");
  check_equal(run(true).error, "");
  check_equal(int{static_cast<char*>(numbers.in->contents())[32]}, 9);
}

void test_a_page_that_is_mapped_twice_is_one_page() {
  Numbers numbers("shuffle");
  Machine& machine = numbers.machine;
  const auto sparse = machine.sparse_buffer(4, "kv");
  const auto heap = machine.heap(2, "heap");
  machine.map(sparse.get(), heap.get(), 0, 1, 1);
  machine.map(sparse.get(), heap.get(), 3, 1, 1);
  std::memset(numbers.in->contents(), 3, Numbers::kBytes);
  const auto run = [&](uint64_t from) {
    return machine.run([&](Encoder encoder) {
      see_mappings(encoder);
      machine.dispatch(encoder, numbers.copy.get(),
                       {sparse->gpuAddress(), numbers.in->gpuAddress()}, 4);
      machine.dispatch(encoder, numbers.copy.get(), {numbers.out->gpuAddress(), from}, 4);
    });
  };
  check_equal(run(sparse->gpuAddress() + 3 * kTile + 64).error, "");
  std::memset(numbers.in->contents(), 4, Numbers::kBytes);
  check_contains(run(sparse->gpuAddress() + 3 * kTile).error,
                 "depends on what kernel copy_word writes at sparse buffer 'kv', byte ");
}

void test_a_kernel_that_depends_on_its_own_order_is_found() {
  Numbers numbers("shuffle");
  const auto fold = numbers.machine.pipeline("fold");
  const Outcome outcome = numbers.machine.run([&](Encoder encoder) {
    numbers.machine.dispatch(encoder, fold.get(), {numbers.out->gpuAddress()}, 64);
    numbers.machine.dispatch(encoder, numbers.copy.get(),
                             {numbers.out->gpuAddress() + 64, numbers.in->gpuAddress()}, 4);
  });
  check_contains(outcome.error, "kernel fold: what it writes depends on the order");
}

void test_failures_and_aborts_pass_through() {
  Numbers numbers("shuffle,guard");
  const auto fail = numbers.machine.pipeline("fail");
  const auto nap = numbers.machine.pipeline("nap");
  const auto group = [&](const MTL::ComputePipelineState* other) {
    return [&, other](Encoder encoder) {
      numbers.machine.dispatch(encoder, other, {}, 4);
      numbers.machine.dispatch(encoder, numbers.copy.get(),
                               {numbers.out->gpuAddress(), numbers.in->gpuAddress()}, 4);
    };
  };
  check_contains(numbers.machine.run(group(fail.get())).error,
                 "kernel fail: barrier reached by 7 of 32 threads");
  set_abort(numbers.machine.device.get(), true);
  check(numbers.machine.run(group(nap.get())).aborted);
  set_abort(numbers.machine.device.get(), false);
  check_equal(numbers.machine.run(group(nap.get())).error, "");
}

}  // namespace
}  // namespace mtlqwen::testing

int main() {
  using namespace mtlqwen::testing;
  return run(
      {{"a missing barrier is found", test_a_missing_barrier_is_found},
       {"the byte in between is named", test_the_byte_in_between_is_named},
       {"two writers of one byte are found", test_two_writers_of_one_byte_are_found},
       {"copies and fills take part", test_copies_and_fills_take_part},
       {"a page that is mapped twice is one page", test_a_page_that_is_mapped_twice_is_one_page},
       {"a kernel that depends on its own order is found",
        test_a_kernel_that_depends_on_its_own_order_is_found},
       {"failures and aborts pass through", test_failures_and_aborts_pass_through}});
}
