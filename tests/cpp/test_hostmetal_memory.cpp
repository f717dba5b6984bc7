// hostmetal: buffers, placement heaps, sparse mappings and the rules about them.
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <string>
#include <vector>

#include "check.hpp"
#include "host_machine.hpp"
#include "hostmetal/executor_cpu.hpp"

namespace mtlqwen::testing {
namespace {

void test_buffers() {
  const Machine machine;
  MTL::Device* device = machine.device.get();
  const auto page = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  const auto shared = NS::TransferPtr(device->newBuffer(100, kShared));
  check(shared->contents() != nullptr);
  check_equal(shared->gpuAddress(), reinterpret_cast<uint64_t>(shared->contents()));
  check_equal(shared->gpuAddress() % page, 0U);
  check_equal(shared->length(), 100U);
  check_equal(device->currentAllocatedSize(), 100U);
  const auto hidden = NS::TransferPtr(device->newBuffer(100, kPrivate));
  check(hidden->contents() == nullptr && hidden->gpuAddress() != 0);
  check(hidden->storageMode() == MTL::StorageModePrivate);
  check(device->newBuffer(0, kShared) == nullptr);
  check(device->newBuffer(device->maxBufferLength() + 1, kShared) == nullptr);
}

void test_wrapped_pages() {
  const Machine machine;
  MTL::Device* device = machine.device.get();
  const auto page = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  void* pages = mmap(nullptr, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  {
    const auto wrapped = NS::TransferPtr(device->newBuffer(pages, 2 * page, kShared, nullptr));
    check(wrapped->contents() == pages);
    check(device->newBuffer(static_cast<char*>(pages) + 16, page, kShared, nullptr) == nullptr);
    check(device->newBuffer(pages, page + 1, kShared, nullptr) == nullptr);
    check(device->newBuffer(pages, page, kPrivate, nullptr) == nullptr);
    check(device->newBuffer(nullptr, page, kShared, nullptr) == nullptr);
  }
  static_cast<char*>(pages)[2 * page - 1] = 1;  // still mapped: the pages are not the buffer's
  munmap(pages, 2 * page);
}

void test_sparse_memory_costs_nothing_until_a_heap_comes() {
  const Machine machine;
  constexpr uint64_t kTiles = 65'536;  // 4 GiB
  const auto sparse = machine.sparse_buffer(kTiles, "kv");
  check_equal(sparse->length(), kTiles * kTile);
  check(sparse->contents() == nullptr);
  check_equal(machine.device->currentAllocatedSize(), 0U);
  auto heap = machine.heap(4, "heap");
  check_equal(machine.device->currentAllocatedSize(), 4 * kTile);
  heap.reset();
  check_equal(machine.device->currentAllocatedSize(), 0U);
}

void test_wrong_sparse_buffers_and_heaps_are_refused() {
  const Machine machine;
  MTL::Device* device = machine.device.get();
  check(device->newBuffer(kTile, kShared, kTileSize) == nullptr);
  check(device->newBuffer(kTile, kPrivate, MTL::SparsePageSize{}) == nullptr);
  const auto descriptor = NS::TransferPtr(MTL::HeapDescriptor::alloc()->init());
  descriptor->setSize(kTile);
  descriptor->setMaxCompatiblePlacementSparsePageSize(kTileSize);
  descriptor->setType(MTL::HeapTypeAutomatic);
  check(device->newHeap(descriptor.get()) == nullptr);
  descriptor->setType(MTL::HeapTypePlacement);
  descriptor->setStorageMode(MTL::StorageModeShared);
  check(device->newHeap(descriptor.get()) == nullptr);
  descriptor->setStorageMode(MTL::StorageModePrivate);
  descriptor->setSize(0);
  check(device->newHeap(descriptor.get()) == nullptr);
  descriptor->setSize(kTile);
  check(NS::TransferPtr(device->newHeap(descriptor.get())).get() != nullptr);
  check(device->newHeap(nullptr) == nullptr);
}

// One round that shows a kernel the mappings, and counts up the word at the start of each given tile.
Outcome count_in(Machine& machine, const MTL::Buffer* sparse, std::vector<uint64_t> tiles) {
  const auto count = machine.pipeline("count");
  return machine.run([&](MTL4::ComputeCommandEncoder* encoder) {
    see_mappings(encoder);
    for (const uint64_t tile : tiles) {
      machine.dispatch(encoder, count.get(), {sparse->gpuAddress() + tile * kTile}, 1);
      barrier(encoder);
    }
  });
}

uint32_t word_in(Machine& machine, const MTL::Buffer* sparse, uint64_t tile) {
  const auto shared = machine.buffer(4, "word");
  const Outcome outcome = machine.run([&](MTL4::ComputeCommandEncoder* encoder) {
    see_mappings(encoder);
    encoder->copyFromBuffer(sparse, tile * kTile, shared.get(), 0, 4);
  });
  check_equal(outcome.error, "");
  return *static_cast<uint32_t*>(shared->contents());
}

void test_one_heap_tile_at_two_places_is_one_memory() {
  Machine machine;
  const auto sparse = machine.sparse_buffer(100, "kv");
  const auto other = machine.sparse_buffer(4, "other");
  const auto heap = machine.heap(3, "heap");
  machine.map(sparse.get(), heap.get(), 7, 2, 1);   // tiles 7, 8 are heap tiles 1, 2
  machine.map(sparse.get(), heap.get(), 50, 1, 2);  // and 50 is the second of them again
  machine.map(other.get(), heap.get(), 0, 1, 2);
  check_equal(count_in(machine, sparse.get(), {7, 8, 50, 50}).error, "");
  check_equal(count_in(machine, other.get(), {0}).error, "");
  check_equal(word_in(machine, sparse.get(), 7), 1U);
  check_equal(word_in(machine, sparse.get(), 8), 4U);
  check_equal(word_in(machine, other.get(), 0), 4U);
}

void test_remapping_replaces_and_unmapping_keeps_the_heap() {
  Machine machine;
  const auto sparse = machine.sparse_buffer(4, "kv");
  const auto heap = machine.heap(2, "heap");
  machine.map(sparse.get(), heap.get(), 0, 1, 0);
  check_equal(count_in(machine, sparse.get(), {0, 0}).error, "");
  machine.map(sparse.get(), heap.get(), 0, 1, 1);
  check_equal(word_in(machine, sparse.get(), 0), 0U);
  machine.map(sparse.get(), nullptr, 0, 1, 0);
  machine.map(sparse.get(), heap.get(), 3, 1, 0);
  check_equal(word_in(machine, sparse.get(), 3), 2U);
  const auto shared = machine.buffer(4, "word");
  const Outcome outcome = machine.run([&](MTL4::ComputeCommandEncoder* encoder) {
    see_mappings(encoder);
    encoder->copyFromBuffer(sparse.get(), 0, shared.get(), 0, 4);
  });
  check(contains(outcome.error, "not mapped"));
}

void test_mappings_need_a_queue_barrier() {
  Machine machine;
  const auto sparse = machine.sparse_buffer(4, "kv");
  const auto heap = machine.heap(2, "heap");
  const auto count = machine.pipeline("count");
  const auto without = [&](MTL4::ComputeCommandEncoder* encoder) {
    machine.dispatch(encoder, count.get(), {sparse->gpuAddress()}, 1);
  };
  const auto with = [&](MTL::Stages after, MTL::Stages before, MTL4::VisibilityOptions options) {
    return machine.run([&](MTL4::ComputeCommandEncoder* encoder) {
      encoder->barrierAfterQueueStages(after, before, options);
      without(encoder);
    });
  };
  constexpr auto kDevice = MTL4::VisibilityOptionDevice;
  machine.map(sparse.get(), heap.get(), 0, 1, 0);
  Outcome outcome = machine.run(without);
  check(contains(outcome.error, "kernel count: buffer 0 (sparse buffer 'kv')"));
  check(contains(outcome.error, "barrierAfterQueueStages"));
  check(!with(MTL::StageDispatch, MTL::StageDispatch, kDevice).error.empty());
  check(!with(MTL::StageResourceState, MTL::StageBlit, kDevice).error.empty());
  check(
      !with(MTL::StageResourceState, MTL::StageDispatch, MTL4::VisibilityOptionNone).error.empty());
  check_equal(with(MTL::StageResourceState, MTL::StageDispatch, kDevice).error, "");
  check_equal(machine.run(without).error, "");  // seen once, seen for good
  machine.map(sparse.get(), heap.get(), 1, 1, 1);
  check(!machine.run(without).error.empty());
}

void test_heaps_must_be_resident_and_alive() {
  Machine machine;
  const auto sparse = machine.sparse_buffer(4, "kv");
  auto heap = machine.heap(2, "tiles");
  machine.map(sparse.get(), heap.get(), 0, 1, 0);
  machine.resident->removeAllocation(heap.get());
  machine.resident->commit();
  Outcome outcome = count_in(machine, sparse.get(), {0});
  check(contains(outcome.error, "heap 'tiles' is mapped here and not resident"));
  machine.make_resident(heap.get());
  check_equal(count_in(machine, sparse.get(), {0}).error, "");
  heap.reset();
  outcome = count_in(machine, sparse.get(), {0});
  check(contains(outcome.error, "heap 'tiles' was released while 1 of its tiles are mapped here"));
  machine.map(sparse.get(), nullptr, 0, 4, 0);
  const auto another = machine.heap(1, "another");
  machine.map(sparse.get(), another.get(), 0, 1, 0);
  check_equal(count_in(machine, sparse.get(), {0}).error, "");
}

void test_wrong_mappings_fail_the_next_command_buffer() {
  Machine machine;
  const auto sparse = machine.sparse_buffer(4, "kv");
  const auto dense = machine.buffer(kTile, "dense");
  const auto heap = machine.heap(2, "tiles");
  const auto small_pages =
      NS::TransferPtr(machine.device->newBuffer(1 << 20, kPrivate, MTL::SparsePageSize16));
  const auto large_pages =
      NS::TransferPtr(machine.device->newBuffer(1 << 20, kPrivate, MTL::SparsePageSize256));
  const auto problem_of = [&](const MTL::Buffer* buffer, const MTL::Heap* from, uint64_t tile,
                              uint64_t n_tiles, uint64_t heap_tile) {
    machine.map(buffer, from, tile, n_tiles, heap_tile);
    return machine.run([](MTL4::ComputeCommandEncoder*) {}).error;
  };
  check(contains(problem_of(sparse.get(), heap.get(), 3, 2, 0), "outside of sparse buffer 'kv'"));
  check(contains(problem_of(sparse.get(), heap.get(), ~uint64_t{0}, 2, 0), "outside of sparse"));
  check(contains(problem_of(sparse.get(), heap.get(), 0, 0, 0), "outside of sparse buffer"));
  check(contains(problem_of(sparse.get(), heap.get(), 0, 2, 1), "outside of heap 'tiles'"));
  check(contains(problem_of(dense.get(), heap.get(), 0, 1, 0), "buffer 'dense' is not sparse"));
  check(contains(problem_of(large_pages.get(), heap.get(), 0, 1, 0), "larger pages"));
  check_equal(problem_of(small_pages.get(), heap.get(), 0, 8, 0), "");
  check_equal(machine.run([](MTL4::ComputeCommandEncoder*) {}).error, "");
  MTL4::UpdateSparseBufferMappingOperation map{
      .mode = MTL::SparseTextureMappingModeMap, .bufferRange = NS::Range(0, 1), .heapOffset = 0};
  machine.queue->updateBufferMappings(sparse.get(), nullptr, &map, 1);
  check(contains(machine.run([](MTL4::ComputeCommandEncoder*) {}).error, "no heap given"));
}

// Every second tile is mapped, to the same heap tile: two regions each for the operating system.
Outcome map_too_much(Machine& machine, const MTL::Buffer* sparse, const MTL::Heap* heap) {
  std::vector<MTL4::UpdateSparseBufferMappingOperation> operations;
  for (uint64_t tile = 0; tile < sparse->length() / kTile; tile += 2) {
    operations.push_back({.mode = MTL::SparseTextureMappingModeMap,
                          .bufferRange = NS::Range(tile, 1),
                          .heapOffset = 0});
  }
  machine.queue->updateBufferMappings(sparse, heap, operations.data(), operations.size());
  return machine.run([](MTL4::ComputeCommandEncoder*) {});
}

uint64_t n_lines(const char* path) {
  std::ifstream file(path);
  uint64_t n = 0;
  for (std::string line; std::getline(file, line);) ++n;
  return n;
}

void test_too_many_mappings_are_an_error() {
  Machine machine;
  auto sparse = machine.sparse_buffer(80'000, "kv");
  const auto heap = machine.heap(1, "heap");
  for (int round = 0; round < 2; ++round) {
    const Outcome outcome = map_too_much(machine, sparse.get(), heap.get());
    check(contains(outcome.error, "more mapped ranges than a process may have"));
    check_equal(outcome.code, NS::Integer{MTL4::CommandQueueErrorOutOfMemory});
    uint64_t limit = 0;
    std::ifstream("/proc/sys/vm/max_map_count") >> limit;
    check(n_lines("/proc/self/maps") + 4000 < limit);  // the process itself can go on
    if (round == 0) machine.map(sparse.get(), nullptr, 0, 80'000, 0);
  }
  sparse.reset();  // with all that is mapped
  const auto next = machine.sparse_buffer(4, "next");
  machine.map(next.get(), heap.get(), 1, 1, 0);
  check_equal(count_in(machine, next.get(), {1}).error, "");
}

// Whether this process can read there, found out without a fault.
bool is_readable(uint64_t address) {
  int ends[2];
  check_equal(pipe(ends), 0);
  const bool readable = write(ends[1], reinterpret_cast<const void*>(address), 1) == 1;
  check(readable || errno == EFAULT);
  close(ends[0]);
  close(ends[1]);
  return readable;
}

void test_unmapped_tiles_cannot_be_touched() {
  Machine machine;
  const auto sparse = machine.sparse_buffer(8, "kv");
  const auto heap = machine.heap(2, "heap");
  const auto tile = [&](uint64_t index) { return sparse->gpuAddress() + index * kTile; };
  machine.map(sparse.get(), heap.get(), 3, 2, 0);
  check_equal(machine.run([](MTL4::ComputeCommandEncoder*) {}).error, "");
  check(!is_readable(tile(3) - 1) && is_readable(tile(3)) && is_readable(tile(5) - 1));
  check(!is_readable(tile(5)));
  machine.map(sparse.get(), nullptr, 4, 1, 0);
  check_equal(machine.run([](MTL4::ComputeCommandEncoder*) {}).error, "");
  check(is_readable(tile(4) - 1) && !is_readable(tile(4)));
}

void test_a_forked_child_has_no_tiles() {
  Machine machine;
  const auto sparse = machine.sparse_buffer(2, "kv");
  const auto heap = machine.heap(1, "heap");
  machine.map(sparse.get(), heap.get(), 0, 1, 0);
  check_equal(machine.run([](MTL4::ComputeCommandEncoder*) {}).error, "");
  check(is_readable(sparse->gpuAddress()));
  const pid_t child = fork();
  if (child == 0) _exit(is_readable(sparse->gpuAddress()) ? 1 : 0);
  int status = 1;
  check_equal(waitpid(child, &status, 0), child);
  check_equal(status, 0);
}

class CountingExecutor final : public hostmetal::CpuExecutor {
 public:
  explicit CountingExecutor(int& n_maps)
      : CpuExecutor(hostmetal::ThreadPool::shared()), n_maps_(n_maps) {}
  bool map(void* address, uint64_t bytes, int heap, uint64_t offset) override {
    ++n_maps_;
    return CpuExecutor::map(address, bytes, heap, offset);
  }

 private:
  int& n_maps_;
};

void test_operations_that_continue_each_other_are_one_call() {
  int n_maps = 0;
  Machine machine(new hostmetal::HostDevice(std::make_unique<CountingExecutor>(n_maps)));
  const auto sparse = machine.sparse_buffer(100, "kv");
  const auto heap = machine.heap(50, "heap");
  std::vector<MTL4::UpdateSparseBufferMappingOperation> operations;
  for (const uint64_t heap_tile : {4U, 5U, 6U, 20U, 21U}) {
    operations.push_back({.mode = MTL::SparseTextureMappingModeMap,
                          .bufferRange = NS::Range(operations.size(), 1),
                          .heapOffset = heap_tile});
  }
  machine.queue->updateBufferMappings(sparse.get(), heap.get(), operations.data(),
                                      operations.size());
  check_equal(machine.run([](MTL4::ComputeCommandEncoder*) {}).error, "");
  check_equal(n_maps, 2);
}

void test_adjacent_tiles_are_one_mapping() {
  Machine machine;
  const auto sparse = machine.sparse_buffer(100, "kv");
  const auto heap = machine.heap(50, "heap");
  const auto memory = hostmetal::MemoryOf::get(sparse.get());
  for (uint64_t tile = 10; tile < 20; ++tile) {
    machine.map(sparse.get(), heap.get(), tile, 1, tile - 10);
  }
  check_equal(machine.run([](MTL4::ComputeCommandEncoder*) {}).error, "");
  check_equal(memory->runs.n_runs(), 1U);
  check_equal(n_regions_of(sparse.get()), 3U);
  machine.map(sparse.get(), heap.get(), 20, 5, 40);  // next to them, but elsewhere in the heap
  machine.map(sparse.get(), nullptr, 12, 1, 0);
  check_equal(machine.run([](MTL4::ComputeCommandEncoder*) {}).error, "");
  check_equal(memory->runs.n_regions(100), 6U);
  check_equal(n_regions_of(sparse.get()), 6U);
}

}  // namespace
}  // namespace mtlqwen::testing

int main() {
  using namespace mtlqwen::testing;
  return run({
      {"buffers", test_buffers},
      {"wrapped_pages", test_wrapped_pages},
      {"sparse_memory_costs_nothing_until_a_heap_comes",
       test_sparse_memory_costs_nothing_until_a_heap_comes},
      {"wrong_sparse_buffers_and_heaps_are_refused",
       test_wrong_sparse_buffers_and_heaps_are_refused},
      {"one_heap_tile_at_two_places_is_one_memory", test_one_heap_tile_at_two_places_is_one_memory},
      {"remapping_replaces_and_unmapping_keeps_the_heap",
       test_remapping_replaces_and_unmapping_keeps_the_heap},
      {"mappings_need_a_queue_barrier", test_mappings_need_a_queue_barrier},
      {"heaps_must_be_resident_and_alive", test_heaps_must_be_resident_and_alive},
      {"wrong_mappings_fail_the_next_command_buffer",
       test_wrong_mappings_fail_the_next_command_buffer},
      {"too_many_mappings_are_an_error", test_too_many_mappings_are_an_error},
      {"unmapped_tiles_cannot_be_touched", test_unmapped_tiles_cannot_be_touched},
      {"a_forked_child_has_no_tiles", test_a_forked_child_has_no_tiles},
      {"operations_that_continue_each_other_are_one_call",
       test_operations_that_continue_each_other_are_one_call},
      {"adjacent_tiles_are_one_mapping", test_adjacent_tiles_are_one_mapping},
  });
}
