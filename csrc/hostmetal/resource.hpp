// Buffers and heaps, and their making.
#pragma once
#include <Metal/MTLResource.hpp>
#include <memory>
#include <utility>

#include "hostmetal/memory.hpp"

namespace mtlqwen::hostmetal {

class HostBuffer final : public MTL::Buffer {
 public:
  explicit HostBuffer(std::shared_ptr<Memory> memory) : MTL::Buffer(std::move(memory)) {}
};

class HostHeap final : public MTL::Heap {
 public:
  explicit HostHeap(std::shared_ptr<Memory> memory) : MTL::Heap(std::move(memory)) {}
};

// Bytes of a tile; 0 where the value is none of the enumeration.
[[nodiscard]] uint64_t tile_bytes(MTL::SparsePageSize page_size);

}  // namespace mtlqwen::hostmetal
