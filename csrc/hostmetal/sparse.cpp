#include "hostmetal/sparse.hpp"

#include <atomic>
#include <cstring>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "hostmetal/faults.hpp"

namespace mtlqwen::hostmetal {
namespace {

// Of all sparse buffers of the process, for the limit is the process's; beyond the one that each has from the start.
std::atomic<uint64_t> regions_in_use{0};

// One or more operations that continue each other.
struct Step {
  bool maps = false;
  uint64_t first = 0;
  uint64_t n_tiles = 0;
  uint64_t heap_tile = 0;  // of a map
};

bool is_map(const MTL4::UpdateSparseBufferMappingOperation& operation) {
  return operation.mode == MTL::SparseTextureMappingModeMap;
}

std::string check_memories(const MappingUpdate& update) {
  if (!update.buffer) return "mapping: of no buffer";
  const Memory& buffer = *update.buffer;
  if (buffer.released) return concat("mapping: ", buffer.name(), " was released before it");
  if (buffer.kind != MemoryKind::kSparse)
    return concat("mapping: ", buffer.name(), " is not sparse");
  if (!update.heap) return {};
  const Memory& heap = *update.heap;
  if (heap.released) return concat("mapping: ", heap.name(), " was released before it");
  if (buffer.page_bytes > heap.page_bytes) {
    return concat("mapping: ", buffer.name(), " has larger pages than ", heap.name(),
                  " serves (got ", buffer.page_bytes, ", want at most ", heap.page_bytes, ")");
  }
  return {};
}

std::string check_operation(const MappingUpdate& update,
                            const MTL4::UpdateSparseBufferMappingOperation& operation) {
  const Memory& buffer = *update.buffer;
  const NS::Range tiles = operation.bufferRange;
  const uint64_t n_tiles = buffer.bytes / buffer.page_bytes;
  if (tiles.length == 0 || tiles.location > n_tiles || tiles.length > n_tiles - tiles.location) {
    return concat("mapping: tiles outside of ", buffer.name(), " (got ", tiles.length, " from ",
                  tiles.location, ", want 1 to ", n_tiles, " within it)");
  }
  if (!is_map(operation)) return {};
  if (!update.heap) return concat("mapping: no heap given to map ", buffer.name(), " from");
  const uint64_t offset = operation.heapOffset;
  const uint64_t heap_tiles = update.heap->bytes / buffer.page_bytes;
  if (offset > heap_tiles || tiles.length > heap_tiles - offset) {
    return concat("mapping: tiles outside of ", update.heap->name(), " (got ", tiles.length,
                  " from ", offset, ", want them within ", heap_tiles, ")");
  }
  return {};
}

std::string check(const MappingUpdate& update) {
  std::string problem = check_memories(update);
  for (size_t i = 0; problem.empty() && i < update.operations.size(); ++i) {
    problem = check_operation(update, update.operations[i]);
  }
  return problem;
}

std::vector<Step> merge(const MappingUpdate& update) {
  std::vector<Step> steps;
  for (const auto& operation : update.operations) {
    const Step step{.maps = is_map(operation),
                    .first = operation.bufferRange.location,
                    .n_tiles = operation.bufferRange.length,
                    .heap_tile = operation.heapOffset};
    Step* last = steps.empty() ? nullptr : &steps.back();
    const bool continues = last && last->maps == step.maps &&
                           last->first + last->n_tiles == step.first &&
                           (!step.maps || last->heap_tile + last->n_tiles == step.heap_tile);
    if (continues) {
      last->n_tiles += step.n_tiles;
    } else {
      steps.push_back(step);
    }
  }
  return steps;
}

// Fills what was never mapped before: a heap's memory is undefined at first, and stays as it is from then on.
void poison_new(Memory& heap, char* address, uint64_t heap_offset, uint64_t bytes) {
  heap.poisoned.resize(heap.bytes / kPoisonBytes);
  for (uint64_t done = 0; done < bytes; done += kPoisonBytes) {
    const uint64_t part = (heap_offset + done) / kPoisonBytes;
    if (heap.poisoned[part]) continue;
    heap.poisoned[part] = true;
    std::memset(address + done, kPoison, kPoisonBytes);
  }
}

std::span<char> addresses_of(const Memory& buffer, const Step& step) {
  const uint64_t page = buffer.page_bytes;
  return {static_cast<char*>(buffer.base) + step.first * page, step.n_tiles * page};
}

bool carry_out(Executor& executor, const MappingUpdate& update, const Step& step) {
  Memory& buffer = *update.buffer;
  const uint64_t offset = step.heap_tile * buffer.page_bytes;
  const std::span<char> range = addresses_of(buffer, step);
  if (!step.maps) {
    if (!executor.unmap(range.data(), range.size())) return false;
    buffer.runs.unmap(step.first, step.n_tiles);
    return true;
  }
  if (!executor.map(range.data(), range.size(), update.heap->heap, offset)) return false;
  if (buffer.device->checks.poison) poison_new(*update.heap, range.data(), offset, range.size());
  buffer.runs.map(step.first,
                  {.n_tiles = step.n_tiles, .heap = update.heap, .heap_tile = step.heap_tile});
  return true;
}

Failure out_of_mappings(const Memory& buffer, uint64_t limit) {
  return {.code = MTL4::CommandQueueErrorOutOfMemory,
          .text = concat("[hostmetal] mapping: ", buffer.name(),
                         " needs more mapped ranges than a process may have (limit ", limit,
                         "); raise vm.max_map_count or use less context")};
}

}  // namespace

void forget_mappings(const Memory& buffer) {
  regions_in_use -= buffer.runs.n_regions(buffer.bytes / buffer.page_bytes) - 1;
}

Failure apply_mappings(HostDevice& device, const MappingUpdate& update) {
  const std::string problem = check(update);
  if (!problem.empty()) return refused("[hostmetal] " + problem);
  Executor& executor = device.executor();
  Memory& buffer = *update.buffer;
  const uint64_t n_tiles = buffer.bytes / buffer.page_bytes;
  const uint64_t limit = executor.max_regions();
  if (should_fail(Fault::kMapping)) return out_of_mappings(buffer, limit);
  std::vector<std::span<char>> mapped;
  {
    const std::lock_guard lock(device.mapping_mutex);
    buffer.last_update = ++device.updates;
    for (const Step& step : merge(update)) {
      constexpr uint64_t kSplit = 2;  // a step in the middle of a region leaves one on each side
      if (step.maps && regions_in_use.load() + kSplit > limit)
        return out_of_mappings(buffer, limit);
      const uint64_t before = buffer.runs.n_regions(n_tiles);
      if (!carry_out(executor, update, step)) return out_of_mappings(buffer, limit);
      regions_in_use += buffer.runs.n_regions(n_tiles) - before;
      if (step.maps) mapped.push_back(addresses_of(buffer, step));
    }
  }
  if (!mapped.empty()) executor.populate(mapped);
  return {};
}

}  // namespace mtlqwen::hostmetal
