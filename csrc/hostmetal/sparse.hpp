// Changes of the mappings between sparse buffers and heaps.
#pragma once
#include <Metal/MTLTypes.hpp>
#include <memory>
#include <vector>

#include "hostmetal/device.hpp"
#include "hostmetal/error.hpp"
#include "hostmetal/memory.hpp"

namespace mtlqwen::hostmetal {

// One updateBufferMappings() on its way through the queue.
struct MappingUpdate {
  std::shared_ptr<Memory> buffer;
  std::shared_ptr<Memory> heap;  // may be null where all operations unmap
  std::vector<MTL4::UpdateSparseBufferMappingOperation> operations;
};

// Checks everything first: a wrong update changes nothing (one that the machine refuses may be half done). Runs of adjacent tiles become one mapping of the operating
// system, however many operations they came in.
[[nodiscard]] Failure apply_mappings(HostDevice& device, const MappingUpdate& update);

// A sparse buffer goes, and its mappings with it.
void forget_mappings(const Memory& buffer);

}  // namespace mtlqwen::hostmetal
