// hostmetal: when the pages of heaps come.
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <thread>
#include <vector>

#include "check.hpp"
#include "host_machine.hpp"
#include "hostmetal/executor_cpu.hpp"
#include "hostmetal/queue.hpp"

namespace mtlqwen::testing {
namespace {

// Pages that a heap has, mapped or not.
uint64_t present_bytes(int heap) {
  struct stat status{};
  check_equal(fstat(heap, &status), 0);
  return static_cast<uint64_t>(status.st_blocks) * 512;
}

int heap_of(const MTL::Heap* heap) { return hostmetal::MemoryOf::get(heap)->heap; }

// A kernel need not fault for them: of several runs, one larger than what a thread takes at a time.
void test_mapped_tiles_have_their_pages() {
  Machine machine;
  const auto sparse = machine.sparse_buffer(100, "kv");
  const auto heap = machine.heap(50, "heap");
  machine.map(sparse.get(), heap.get(), 1, 1, 40);
  machine.map(sparse.get(), heap.get(), 10, 21, 3);
  check_equal(machine.run([](MTL4::ComputeCommandEncoder*) {}).error, "");
  const auto are_present = [&](uint64_t tile, uint64_t n_tiles) {
    std::vector<unsigned char> pages(n_tiles * kTile / static_cast<uint64_t>(getpagesize()));
    void* first = reinterpret_cast<void*>(sparse->gpuAddress() + tile * kTile);
    check_equal(mincore(first, n_tiles * kTile, pages.data()), 0);
    return std::ranges::all_of(pages, [](unsigned char bits) { return (bits & 1) != 0; });
  };
  check(are_present(1, 1) && are_present(10, 21));
}

// What a heap holds already stays.
void test_part_of_a_heap_gets_its_pages() {
  hostmetal::CpuExecutor executor(hostmetal::ThreadPool::shared());
  const int heap = executor.create_heap(50 * kTile);
  char* at = static_cast<char*>(executor.reserve(kTile));
  check(executor.map(at, kTile, heap, 7 * kTile));
  std::memset(at, 5, kTile);
  check_equal(present_bytes(heap), kTile);
  executor.bring(heap, 4 * kTile, 10 * kTile);
  check_equal(present_bytes(heap), 10 * kTile);
  executor.bring(heap, 40 * kTile, 10 * kTile);
  check_equal(present_bytes(heap), 20 * kTile);
  check(std::all_of(at, at + kTile, [](char byte) { return byte == 5; }));
  executor.free(at, kTile);
  executor.destroy_heap(heap);
}

// Sizes are no multiples of what is brought at a time. A heap that is gone is no heap to wait for.
void check_mapped_heaps_get_all_their_pages(bool by_waiter) {
  Machine machine;
  const auto sparse = machine.sparse_buffer(100, "kv");
  const auto large = machine.heap(50, "large");
  const auto small = machine.heap(1, "small");
  const auto unmapped = machine.heap(1, "unmapped");
  auto gone = machine.heap(50, "gone");
  uint64_t tile = 0;
  if (by_waiter) hostmetal::host(machine.queue.get())->expect_wait();
  for (const auto& heap : {gone, large, small, large}) {
    machine.map(sparse.get(), heap.get(), tile++, 1, 0);
  }
  machine.map(sparse.get(), nullptr, 0, 1, 0);
  check_equal(machine.run([](MTL4::ComputeCommandEncoder*) {}).error, "");
  machine.resident->removeAllocation(gone.get());
  machine.resident->commit();
  gone.reset();
  while (present_bytes(heap_of(large.get())) + present_bytes(heap_of(small.get())) < 51 * kTile) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  check_equal(present_bytes(heap_of(unmapped.get())), 0U);
}

void test_mapped_heaps_get_all_their_pages_while_the_queue_rests() {
  check_mapped_heaps_get_all_their_pages(false);
}

// The queue's own thread may have slept all along.
void test_heaps_that_a_waiter_mapped_get_theirs_too() {
  check_mapped_heaps_get_all_their_pages(true);
}

}  // namespace
}  // namespace mtlqwen::testing

int main() {
  using namespace mtlqwen::testing;
  return run({
      {"mapped_tiles_have_their_pages", test_mapped_tiles_have_their_pages},
      {"part_of_a_heap_gets_its_pages", test_part_of_a_heap_gets_its_pages},
      {"mapped_heaps_get_all_their_pages_while_the_queue_rests",
       test_mapped_heaps_get_all_their_pages_while_the_queue_rests},
      {"heaps_that_a_waiter_mapped_get_theirs_too", test_heaps_that_a_waiter_mapped_get_theirs_too},
  });
}
