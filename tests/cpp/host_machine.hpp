// A software device with all that one round of commands needs, over the kernels of fake_kernels.hpp.
#pragma once
#include <Metal/Metal.hpp>
#include <cstdint>
#include <fstream>
#include <functional>
#include <future>
#include <memory>
#include <string>

#include "fake_kernels.hpp"
#include "gpu/platform.hpp"
#include "hostmetal/device.hpp"
#include "hostmetal/library.hpp"

namespace mtlqwen::testing {

inline constexpr MTL::ResourceOptions kShared = MTL::ResourceStorageModeShared;
inline constexpr MTL::ResourceOptions kPrivate = MTL::ResourceStorageModePrivate;
inline constexpr uint64_t kTile = 64 << 10;
inline constexpr MTL::SparsePageSize kTileSize = MTL::SparsePageSize64;

struct Pool {
  NS::AutoreleasePool* pool = NS::AutoreleasePool::alloc()->init();
  ~Pool() { pool->release(); }
};

inline NS::String* ns(const char* text) { return NS::String::string(text, NS::UTF8StringEncoding); }

// How a round ended; no text: well.
struct Outcome {
  std::string error;
  NS::Integer code = 0;
  bool aborted = false;
  double seconds = 0.0;
};

inline bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

struct Machine {
  Pool pool;
  NS::SharedPtr<MTL::Device> device;
  NS::SharedPtr<MTL4::CommandQueue> queue = NS::TransferPtr(device->newMTL4CommandQueue());
  NS::SharedPtr<MTL::ResidencySet> resident =
      NS::TransferPtr(device->newResidencySet(nullptr, nullptr));
  NS::SharedPtr<MTL::Library> library = NS::TransferPtr<MTL::Library>(
      new hostmetal::HostLibrary(*hostmetal::host(device.get()), fake_library(), "fake"));
  NS::SharedPtr<MTL4::Compiler> compiler = NS::TransferPtr(device->newCompiler(nullptr, nullptr));
  NS::SharedPtr<MTL4::CommandAllocator> allocator = NS::TransferPtr(device->newCommandAllocator());
  NS::SharedPtr<MTL4::CommandBuffer> commands = NS::TransferPtr(device->newCommandBuffer());
  NS::SharedPtr<MTL4::ArgumentTable> table;
  NS::SharedPtr<MTL::SharedEvent> event = NS::TransferPtr(device->newSharedEvent());
  uint64_t round = 0;

  explicit Machine(MTL::Device* of_device = MTL::CreateSystemDefaultDevice())
      : device(NS::TransferPtr(of_device)) {
    queue->addResidencySet(resident.get());
    const auto descriptor = NS::TransferPtr(MTL4::ArgumentTableDescriptor::alloc()->init());
    descriptor->setMaxBufferBindCount(8);
    table = NS::TransferPtr(device->newArgumentTable(descriptor.get(), nullptr));
  }

  void make_resident(const MTL::Allocation* allocation) const {
    resident->addAllocation(allocation);
    resident->commit();
  }

  NS::SharedPtr<MTL::Buffer> buffer(uint64_t bytes, const char* label) const {
    auto made = NS::TransferPtr(device->newBuffer(bytes, kShared));
    made->setLabel(ns(label));
    make_resident(made.get());
    return made;
  }

  NS::SharedPtr<MTL::Buffer> sparse_buffer(uint64_t tiles, const char* label) const {
    auto made = NS::TransferPtr(device->newBuffer(tiles * kTile, kPrivate, kTileSize));
    made->setLabel(ns(label));
    make_resident(made.get());
    return made;
  }

  NS::SharedPtr<MTL::Heap> heap(uint64_t tiles, const char* label) const {
    const auto descriptor = NS::TransferPtr(MTL::HeapDescriptor::alloc()->init());
    descriptor->setType(MTL::HeapTypePlacement);
    descriptor->setStorageMode(MTL::StorageModePrivate);
    descriptor->setMaxCompatiblePlacementSparsePageSize(kTileSize);
    descriptor->setSize(tiles * kTile);
    auto made = NS::TransferPtr(device->newHeap(descriptor.get()));
    made->setLabel(ns(label));
    make_resident(made.get());
    return made;
  }

  void map(const MTL::Buffer* buffer, const MTL::Heap* heap, uint64_t tile, uint64_t n_tiles,
           uint64_t heap_tile) const {
    const MTL4::UpdateSparseBufferMappingOperation operation{
        .mode = heap ? MTL::SparseTextureMappingModeMap : MTL::SparseTextureMappingModeUnmap,
        .bufferRange = NS::Range(tile, n_tiles),
        .heapOffset = heap_tile};
    queue->updateBufferMappings(buffer, heap, &operation, 1);
  }

  NS::SharedPtr<MTL::ComputePipelineState>
  pipeline(const char* name, const MTL::FunctionConstantValues* constants = nullptr,
           std::string* error_text = nullptr) const {
    const Pool scope;
    const auto function = NS::TransferPtr(MTL4::LibraryFunctionDescriptor::alloc()->init());
    function->setLibrary(library.get());
    function->setName(ns(name));
    const auto special = NS::TransferPtr(MTL4::SpecializedFunctionDescriptor::alloc()->init());
    special->setFunctionDescriptor(function.get());
    special->setConstantValues(constants);
    const auto descriptor = NS::TransferPtr(MTL4::ComputePipelineDescriptor::alloc()->init());
    descriptor->setComputeFunctionDescriptor(special.get());
    NS::Error* error = nullptr;
    auto state =
        NS::TransferPtr(compiler->newComputePipelineState(descriptor.get(), nullptr, &error));
    if (error_text) *error_text = error ? error->localizedDescription()->utf8String() : "";
    return state;
  }

  // Commits what was recorded, and waits for the event and the feedback.
  Outcome commit() {
    const auto promise = std::make_shared<std::promise<Outcome>>();
    std::future<Outcome> outcome = promise->get_future();
    const auto options = NS::TransferPtr(MTL4::CommitOptions::alloc()->init());
    options->addFeedbackHandler([promise](MTL4::CommitFeedback* feedback) {
      const NS::Error* error = feedback->error();
      promise->set_value({.error = error ? error->localizedDescription()->utf8String() : "",
                          .code = error->code(),
                          .aborted = is_abort_error(error),
                          .seconds = feedback->GPUEndTime() - feedback->GPUStartTime()});
    });
    const MTL4::CommandBuffer* buffers[] = {commands.get()};
    queue->commit(buffers, 1, options.get());
    queue->signalEvent(event.get(), ++round);
    event->waitUntilSignaledValue(round, 60'000);
    return outcome.get();
  }

  // One command buffer with one encoder.
  Outcome run(const std::function<void(MTL4::ComputeCommandEncoder*)>& encode) {
    const Pool scope;
    allocator->reset();
    commands->beginCommandBuffer(allocator.get());
    MTL4::ComputeCommandEncoder* encoder = commands->computeCommandEncoder();
    encoder->setArgumentTable(table.get());
    encode(encoder);
    encoder->endEncoding();
    commands->endCommandBuffer();
    return commit();
  }

  // One dispatch of `groups` threadgroups with the buffers bound from 0.
  void dispatch(MTL4::ComputeCommandEncoder* encoder, const MTL::ComputePipelineState* state,
                std::initializer_list<uint64_t> addresses, uint64_t groups) const {
    NS::UInteger index = 0;
    for (const uint64_t address : addresses) table->setAddress(address, index++);
    encoder->setComputePipelineState(state);
    encoder->dispatchThreadgroups(MTL::Size(groups, 1, 1), MTL::Size(32, 1, 1));
  }
};

inline void barrier(MTL4::ComputeCommandEncoder* encoder) {
  constexpr MTL::Stages kWork = MTL::StageDispatch | MTL::StageBlit;
  encoder->barrierAfterEncoderStages(kWork, kWork, MTL4::VisibilityOptionDevice);
}

inline void see_mappings(MTL4::ComputeCommandEncoder* encoder) {
  encoder->barrierAfterQueueStages(MTL::StageResourceState, MTL::StageDispatch | MTL::StageBlit,
                                   MTL4::VisibilityOptionDevice |
                                       MTL4::VisibilityOptionResourceAlias);
}

// Ranges of a buffer that the operating system keeps apart.
inline uint64_t n_regions_of(const MTL::Buffer* buffer) {
  const uint64_t first = buffer->gpuAddress();
  const uint64_t end = first + buffer->length();
  std::ifstream maps("/proc/self/maps");
  uint64_t n = 0;
  for (std::string line; std::getline(maps, line);) {
    size_t used = 0;
    const uint64_t begins = std::stoull(line, &used, 16);
    const uint64_t ends = std::stoull(line.substr(used + 1), nullptr, 16);
    n += begins < end && ends > first;
  }
  return n;
}

}  // namespace mtlqwen::testing
