#include "hostmetal/resource.hpp"

#include <unistd.h>

#include "base/math.hpp"
#include "hostmetal/device.hpp"
#include "hostmetal/error.hpp"
#include "hostmetal/faults.hpp"

namespace mtlqwen::hostmetal {

std::shared_ptr<Memory> MemoryOf::get(const MTL::Allocation* allocation) {
  return allocation ? allocation->memory_ : nullptr;
}

uint64_t tile_bytes(MTL::SparsePageSize page_size) {
  switch (page_size) {
  case MTL::SparsePageSize16:
    return uint64_t{16} << 10;
  case MTL::SparsePageSize64:
    return uint64_t{64} << 10;
  case MTL::SparsePageSize256:
    return uint64_t{256} << 10;
  }
  return 0;
}

namespace {

MTL::Buffer* finish(std::shared_ptr<Memory> memory, MTL::ResourceOptions options) {
  if (!memory->base || should_fail(Fault::kAllocation)) return nullptr;
  memory->is_private = (options & MTL::ResourceStorageModePrivate) != 0;
  const HostChecks& checks = memory->device->checks;
  const bool is_owned = memory->kind == MemoryKind::kOwned;
  if (checks.guard && is_owned) memory->fill_margins();
  // Metal clears new buffers; who relies on that where no CPU can look forgets it in memory that is used again.
  if (checks.poison && is_owned && memory->is_private) memory->poison();
  memory->device->addresses.add(memory);
  return new HostBuffer(std::move(memory));
}

uint64_t whole_pages(uint64_t bytes) {
  return align_up(bytes, static_cast<uint64_t>(sysconf(_SC_PAGESIZE)));
}

}  // namespace
}  // namespace mtlqwen::hostmetal

namespace MTL {

using mtlqwen::hostmetal::finish;
using mtlqwen::hostmetal::host;
using mtlqwen::hostmetal::HostDevice;
using mtlqwen::hostmetal::Memory;
using mtlqwen::hostmetal::MemoryKind;
using mtlqwen::hostmetal::MemoryOf;

Buffer* Device::newBuffer(NS::UInteger length, ResourceOptions options) {
  if (!this || length == 0 || length > maxBufferLength()) return nullptr;
  HostDevice& device = *host(this);
  auto memory = std::make_shared<Memory>(device, MemoryKind::kOwned, length);
  memory->base = device.executor().allocate(length);
  return finish(std::move(memory), options);
}

Buffer* Device::newBuffer(const void* pointer, NS::UInteger length, ResourceOptions options,
                          std::nullptr_t /*deallocator*/) {
  const bool fits = this && pointer && length != 0 && length <= maxBufferLength();
  const bool is_private = (options & ResourceStorageModePrivate) != 0;
  if (!fits || is_private || mtlqwen::hostmetal::whole_pages(length) != length) return nullptr;
  const auto address = reinterpret_cast<uint64_t>(pointer);
  if (mtlqwen::hostmetal::whole_pages(address) != address) return nullptr;
  auto memory = std::make_shared<Memory>(*host(this), MemoryKind::kWrapped, length);
  memory->base = const_cast<void*>(pointer);
  return finish(std::move(memory), options);
}

Buffer* Device::newBuffer(NS::UInteger length, ResourceOptions options,
                          SparsePageSize placementSparsePageSize) {
  const uint64_t page = mtlqwen::hostmetal::tile_bytes(placementSparsePageSize);
  const bool is_private = (options & ResourceStorageModePrivate) != 0;
  if (!this || length == 0 || length > maxBufferLength() || page == 0 || !is_private) {
    return nullptr;
  }
  HostDevice& device = *host(this);
  const uint64_t bytes = mtlqwen::align_up(length, page);
  auto memory = std::make_shared<Memory>(device, MemoryKind::kSparse, bytes);
  memory->base = device.executor().reserve(bytes);
  memory->page_bytes = page;
  return finish(std::move(memory), options);
}

Heap* Device::newHeap(const HeapDescriptor* descriptor) {
  const uint64_t page =
      mtlqwen::hostmetal::tile_bytes(descriptor->maxCompatiblePlacementSparsePageSize());
  const bool is_placement =
      descriptor->type() == HeapTypePlacement && descriptor->storageMode() == StorageModePrivate;
  if (!this || !is_placement || page == 0 || descriptor->size() == 0) return nullptr;
  HostDevice& device = *host(this);
  const uint64_t bytes = mtlqwen::align_up(descriptor->size(), page);
  auto memory = std::make_shared<Memory>(device, MemoryKind::kHeap, bytes);
  memory->heap = device.executor().create_heap(bytes);
  const bool fails = mtlqwen::hostmetal::should_fail(mtlqwen::Fault::kAllocation);
  if (memory->heap < 0 || fails) return nullptr;
  memory->page_bytes = page;
  memory->is_private = true;
  return new mtlqwen::hostmetal::HostHeap(std::move(memory));
}

Allocation::Allocation(std::shared_ptr<Memory> memory) : memory_(std::move(memory)) {}

Allocation::~Allocation() {
  if (!memory_) return;
  memory_->released = true;
  const bool is_owned = memory_->kind == MemoryKind::kOwned && memory_->base;
  if (memory_->device->checks.poison && is_owned) memory_->poison();
  if (memory_->base) memory_->device->addresses.remove(*memory_);
}

NS::String* Resource::label() const {
  const auto memory = MemoryOf::get(this);
  return memory ? mtlqwen::hostmetal::autoreleased(memory->label()) : nullptr;
}

void Resource::setLabel(const NS::String* label) {
  if (const auto memory = MemoryOf::get(this)) {
    memory->set_label(mtlqwen::hostmetal::text_of(label));
  }
}

StorageMode Resource::storageMode() const {
  const auto memory = MemoryOf::get(this);
  return memory && memory->is_private ? StorageModePrivate : StorageModeShared;
}

void* Buffer::contents() {
  const auto memory = MemoryOf::get(this);
  return memory && !memory->is_private ? memory->base : nullptr;
}

GPUAddress Buffer::gpuAddress() const {
  const auto memory = MemoryOf::get(this);
  return memory ? reinterpret_cast<GPUAddress>(memory->base) : 0;
}

NS::UInteger Buffer::length() const {
  const auto memory = MemoryOf::get(this);
  return memory ? memory->bytes : 0;
}

NS::String* Heap::label() const {
  const auto memory = MemoryOf::get(this);
  return memory ? mtlqwen::hostmetal::autoreleased(memory->label()) : nullptr;
}

void Heap::setLabel(const NS::String* label) {
  if (const auto memory = MemoryOf::get(this)) {
    memory->set_label(mtlqwen::hostmetal::text_of(label));
  }
}

NS::UInteger Heap::size() const {
  const auto memory = MemoryOf::get(this);
  return memory ? memory->bytes : 0;
}

// Metal 4 tracks no hazards.
void HeapDescriptor::setHazardTrackingMode(HazardTrackingMode /*hazardTrackingMode*/) {}

HeapDescriptor* HeapDescriptor::alloc() { return new HeapDescriptor; }
HeapDescriptor* HeapDescriptor::init() { return this; }
NS::UInteger HeapDescriptor::size() const { return this ? size_ : 0; }
StorageMode HeapDescriptor::storageMode() const { return this ? storage_mode_ : StorageMode{}; }
HeapType HeapDescriptor::type() const { return this ? type_ : HeapType{}; }

SparsePageSize HeapDescriptor::maxCompatiblePlacementSparsePageSize() const {
  return this ? page_size_ : SparsePageSize{};
}

void HeapDescriptor::setSize(NS::UInteger size) {
  if (this) size_ = size;
}

void HeapDescriptor::setStorageMode(StorageMode storageMode) {
  if (this) storage_mode_ = storageMode;
}

void HeapDescriptor::setType(HeapType type) {
  if (this) type_ = type;
}

void HeapDescriptor::setMaxCompatiblePlacementSparsePageSize(
    SparsePageSize maxCompatiblePlacementSparsePageSize) {
  if (this) page_size_ = maxCompatiblePlacementSparsePageSize;
}

}  // namespace MTL
