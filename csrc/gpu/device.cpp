#include "gpu/device.hpp"

#include <unistd.h>

#include <string>
#include <utility>

#include "base/error.hpp"
#include "base/math.hpp"
#include "gpu/foundation.hpp"
#include "gpu/platform.hpp"

namespace mtlqwen {
namespace {

MTL::SparsePageSize sparse_page_size(uint64_t page_bytes) {
  if (page_bytes == 16 * 1024) return MTL::SparsePageSize16;
  if (page_bytes == 64 * 1024) return MTL::SparsePageSize64;
  if (page_bytes == 256 * 1024) return MTL::SparsePageSize256;
  throw DeviceError(concat("[gpu] sparse page: no such size (got ", page_bytes,
                           " bytes, want 16, 64 or 256 KiB); choose one of them"));
}

template <class E = DeviceError>
[[noreturn]] void throw_refused(const char* what, std::string_view label, uint64_t bytes) {
  throw E(concat("[gpu] ", label, ": the device refused ", what, " of ", bytes,
                 " bytes; free memory, or ask for less context or fewer slots"));
}

template <class T>
NS::SharedPtr<T> require(T* object, const char* what, const NS::Error* error) {
  if (object == nullptr) {
    throw DeviceError(concat("[gpu] ", what, ": not available (", to_text(error),
                             "); Metal 4 on macOS 26 or later is needed"));
  }
  return NS::TransferPtr(object);
}

}  // namespace

uint64_t recommended_bytes() {
  const AutoreleaseScope scope;
  return require(MTL::CreateSystemDefaultDevice(), "device", nullptr)
      ->recommendedMaxWorkingSetSize();
}

Device::Device(const std::string& library_path) {
  const AutoreleaseScope scope;
  require_machine();
  NS::Error* error = nullptr;
  device_ = require(MTL::CreateSystemDefaultDevice(), "device", nullptr);
  queue_ = require(device_->newMTL4CommandQueue(), "command queue", nullptr);
  const auto descriptor = NS::TransferPtr(MTL::ResidencySetDescriptor::alloc()->init());
  residency_ = require(device_->newResidencySet(descriptor.get(), &error), "residency set", error);
  queue_->addResidencySet(residency_.get());
  mapped_ = require(device_->newSharedEvent(), "shared event", nullptr);
  pipelines_ = std::make_unique<Pipelines>(device_.get(), library_path);
  clear_abort();
}

Device::~Device() {
  const AutoreleaseScope scope;
  if (lost_) queue_.detach();
  pipelines_.reset();
  queue_.reset();
  residency_.reset();
  mapped_.reset();
  device_.reset();
}

std::string Device::name() const {
  const AutoreleaseScope scope;
  return to_text(device_->name());
}

uint64_t Device::max_buffer_bytes() const {
  const AutoreleaseScope scope;
  return device_->maxBufferLength();
}

uint64_t Device::recommended_bytes() const {
  const AutoreleaseScope scope;
  return device_->recommendedMaxWorkingSetSize();
}

bool Device::is_software() const { return is_software_device(device_.get()); }

bool Device::prefers_int16() const { return mtlqwen::prefers_int16(device_.get()); }

std::string Device::arithmetic_name() const { return mtlqwen::arithmetic_name(device_.get()); }

void Device::set_threads(uint32_t n) { mtlqwen::set_threads(device_.get(), n); }

uint32_t Device::n_threads() const { return mtlqwen::n_threads(device_.get()); }

Buffer Device::new_buffer(uint64_t bytes, Storage storage, std::string_view label) {
  const AutoreleaseScope scope;
  const MTL::ResourceOptions mode = storage == Storage::kShared ? MTL::ResourceStorageModeShared
                                                                : MTL::ResourceStorageModePrivate;
  auto buffer =
      NS::TransferPtr(device_->newBuffer(bytes, mode | MTL::ResourceHazardTrackingModeUntracked));
  if (!buffer) throw_refused("a buffer", label, bytes);
  buffer->setLabel(ns_string(label));
  return {*this, std::move(buffer), bytes};
}

Buffer Device::wrap_pages(void* pages, uint64_t bytes, std::string_view label) {
  const AutoreleaseScope scope;
  const auto page = static_cast<uint64_t>(::sysconf(_SC_PAGESIZE));
  if (reinterpret_cast<uintptr_t>(pages) % page != 0 || bytes % page != 0) {
    throw DeviceError(concat("[gpu] ", label, ": not whole pages (got ", bytes, " bytes at ", pages,
                             ", want multiples of ", page, "); copy it instead"));
  }
  auto buffer = NS::TransferPtr(device_->newBuffer(
      pages, bytes, MTL::ResourceStorageModeShared | MTL::ResourceHazardTrackingModeUntracked,
      nullptr));
  if (!buffer) throw_refused("to wrap a buffer", label, bytes);
  buffer->setLabel(ns_string(label));
  return {*this, std::move(buffer), bytes};
}

Buffer Device::new_sparse_buffer(uint64_t bytes, uint64_t page_bytes, std::string_view label) {
  const AutoreleaseScope scope;
  const MTL::SparsePageSize page = sparse_page_size(page_bytes);
  auto buffer = NS::TransferPtr(device_->newBuffer(
      align_up(bytes, page_bytes),
      MTL::ResourceStorageModePrivate | MTL::ResourceHazardTrackingModeUntracked, page));
  if (!buffer) throw_refused("a sparse buffer", label, bytes);
  buffer->setLabel(ns_string(label));
  return {*this, std::move(buffer), 0};
}

Heap Device::new_heap(uint64_t bytes, uint64_t page_bytes, std::string_view label) {
  const AutoreleaseScope scope;
  const auto descriptor = NS::TransferPtr(MTL::HeapDescriptor::alloc()->init());
  descriptor->setType(MTL::HeapTypePlacement);
  descriptor->setStorageMode(MTL::StorageModePrivate);
  descriptor->setHazardTrackingMode(MTL::HazardTrackingModeUntracked);
  descriptor->setMaxCompatiblePlacementSparsePageSize(sparse_page_size(page_bytes));
  descriptor->setSize(align_up(bytes, page_bytes));
  auto heap = NS::TransferPtr(device_->newHeap(descriptor.get()));
  if (!heap) throw_refused<CapacityError>("a heap", label, bytes);
  heap->setLabel(ns_string(label));
  return {*this, std::move(heap)};
}

void Device::update_mappings(const Buffer& buffer, const Heap* heap,
                             std::span<const MappingRun> runs) {
  if (runs.empty()) return;
  const AutoreleaseScope scope;
  commit_residency();
  operations_.clear();
  for (const MappingRun& run : runs) {
    operations_.push_back({.mode = heap != nullptr ? MTL::SparseTextureMappingModeMap
                                                   : MTL::SparseTextureMappingModeUnmap,
                           .bufferRange = NS::Range(run.buffer_tile, run.n_tiles),
                           .heapOffset = heap != nullptr ? run.heap_tile : 0});
  }
  ++mapping_updates_;
  queue_->updateBufferMappings(buffer.get(), heap != nullptr ? heap->get() : nullptr,
                               operations_.data(), operations_.size());
}

void Device::drain_mappings() noexcept {
  constexpr uint64_t kLimitMs = 30'000;  // a mapping takes well under a second
  if (lost_ || drained_updates_ == mapping_updates_) return;
  const AutoreleaseScope scope;
  expect_wait(queue_.get());
  queue_->signalEvent(mapped_.get(), mapping_updates_);
  lost_ = !mapped_->waitUntilSignaledValue(mapping_updates_, kLimitMs);
  drained_updates_ = mapping_updates_;
}

std::shared_ptr<Timer> Device::new_timer() const { return std::make_shared<Timer>(device_.get()); }

void Device::request_abort() { set_abort(device_.get(), true); }
void Device::clear_abort() { set_abort(device_.get(), false); }

void Device::add_resident(const MTL::Allocation* allocation, uint64_t bytes) {
  residency_->addAllocation(allocation);
  residency_changed_ = true;
  allocated_bytes_ += bytes;
}

void Device::remove_resident(const MTL::Allocation* allocation, uint64_t bytes) {
  residency_->removeAllocation(allocation);
  residency_changed_ = true;
  allocated_bytes_ -= bytes;
}

void Device::commit_residency() {
  if (!residency_changed_) return;
  residency_->commit();
  residency_changed_ = false;
}

}  // namespace mtlqwen
