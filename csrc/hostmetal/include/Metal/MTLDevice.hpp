// The device: what it can do, and the maker of everything else.
#pragma once
#include <cstddef>
#include <cstdint>

#include "MTLResource.hpp"
#include "MTLTypes.hpp"

namespace MTL4 {
class ArgumentTable;
class ArgumentTableDescriptor;
class CommandAllocator;
class CommandBuffer;
class CommandQueue;
class Compiler;
class CompilerDescriptor;
class CounterHeap;
class CounterHeapDescriptor;
}  // namespace MTL4

namespace MTL {

class Library;
class SharedEvent;

class Device : public NS::Referencing<Device> {
 public:
  [[nodiscard]] NS::String* name() const;
  [[nodiscard]] bool supportsFamily(MTL::GPUFamily gpuFamily);
  [[nodiscard]] NS::UInteger maxBufferLength() const;
  [[nodiscard]] uint64_t recommendedMaxWorkingSetSize() const;
  [[nodiscard]] NS::UInteger maxThreadgroupMemoryLength() const;
  [[nodiscard]] Size maxThreadsPerThreadgroup() const;
  [[nodiscard]] NS::UInteger currentAllocatedSize() const;  // sparse buffers do not count, heaps do
  [[nodiscard]] NS::UInteger sparseTileSizeInBytes(MTL::SparsePageSize sparsePageSize);

  // All buffers start at a page; null for a length of 0 or above maxBufferLength().
  Buffer* newBuffer(NS::UInteger length, MTL::ResourceOptions options);
  // Wraps memory without a copy: whole pages, shared. Apple's last parameter is a block, which a C++ compiler cannot
  // parse; null is the one argument that both accept.
  Buffer* newBuffer(const void* pointer, NS::UInteger length, MTL::ResourceOptions options,
                    std::nullptr_t deallocator);
  // Address space of a private, placement-sparse buffer; tiles are mapped by MTL4::CommandQueue.
  Buffer* newBuffer(NS::UInteger length, MTL::ResourceOptions options,
                    MTL::SparsePageSize placementSparsePageSize);
  Heap* newHeap(const MTL::HeapDescriptor* descriptor);  // private placement heaps only, else null

  // A kernel library: beside <stem>.metallib stands one <stem>.<isa>.so for each CPU level.
  Library* newLibrary(const NS::URL* url, NS::Error** error);
  MTL4::Compiler* newCompiler(const MTL4::CompilerDescriptor* descriptor, NS::Error** error);
  MTL4::ArgumentTable* newArgumentTable(const MTL4::ArgumentTableDescriptor* descriptor,
                                        NS::Error** error);
  ResidencySet* newResidencySet(const MTL::ResidencySetDescriptor* desc, NS::Error** error);
  MTL4::CommandAllocator* newCommandAllocator();
  MTL4::CommandBuffer* newCommandBuffer();
  MTL4::CommandQueue* newMTL4CommandQueue();
  SharedEvent* newSharedEvent();
  MTL4::CounterHeap* newCounterHeap(const MTL4::CounterHeapDescriptor* descriptor,
                                    NS::Error** error);
  uint64_t queryTimestampFrequency();  // ticks a second

 protected:
  Device() = default;
};

// Unlike Apple's, every call makes a device of its own, with its own abort flag; all share one pool of threads.
Device* CreateSystemDefaultDevice();

}  // namespace MTL
