// Memory: buffers, placement heaps, and the sets that say what is resident.
#pragma once
#include <memory>

#include "MTLTypes.hpp"

namespace mtlqwen::hostmetal {
struct Memory;
struct MemoryOf;
}  // namespace mtlqwen::hostmetal

namespace MTL {

class Device;

class Allocation : public NS::Referencing<Allocation> {
 protected:
  Allocation() = default;  // of a pipeline, which has no memory of its own
  explicit Allocation(std::shared_ptr<mtlqwen::hostmetal::Memory> memory);
  ~Allocation() override;

 private:
  friend struct mtlqwen::hostmetal::MemoryOf;
  std::shared_ptr<mtlqwen::hostmetal::Memory> memory_;
};

class Resource : public NS::Referencing<Resource, Allocation> {
 public:
  [[nodiscard]] NS::String* label() const;
  void setLabel(const NS::String* label);
  [[nodiscard]] StorageMode storageMode() const;

 protected:
  using Referencing::Referencing;
};

class Buffer : public NS::Referencing<Buffer, Resource> {
 public:
  void* contents();  // null where private
  [[nodiscard]] GPUAddress gpuAddress() const;
  [[nodiscard]] NS::UInteger length() const;

 protected:
  using Referencing::Referencing;
};

class HeapDescriptor : public NS::Copying<HeapDescriptor> {
 public:
  static HeapDescriptor* alloc();
  HeapDescriptor* init();

  [[nodiscard]] NS::UInteger size() const;
  void setSize(NS::UInteger size);
  [[nodiscard]] StorageMode storageMode() const;
  void setStorageMode(MTL::StorageMode storageMode);
  void setHazardTrackingMode(MTL::HazardTrackingMode hazardTrackingMode);
  [[nodiscard]] HeapType type() const;
  void setType(MTL::HeapType type);
  [[nodiscard]] SparsePageSize maxCompatiblePlacementSparsePageSize() const;
  void
  setMaxCompatiblePlacementSparsePageSize(MTL::SparsePageSize maxCompatiblePlacementSparsePageSize);

 private:
  HeapDescriptor() = default;
  NS::UInteger size_ = 0;
  StorageMode storage_mode_ = StorageModePrivate;
  HeapType type_ = HeapTypeAutomatic;
  SparsePageSize page_size_{};  // none: sparse buffers cannot use the heap
};

class Heap : public NS::Referencing<Heap, Allocation> {
 public:
  [[nodiscard]] NS::String* label() const;
  void setLabel(const NS::String* label);
  [[nodiscard]] NS::UInteger size() const;

 protected:
  using Referencing::Referencing;
};

class ResidencySetDescriptor : public NS::Copying<ResidencySetDescriptor> {
 public:
  static ResidencySetDescriptor* alloc();
  ResidencySetDescriptor* init();

 private:
  ResidencySetDescriptor() = default;
};

// Changes of membership take effect at commit(). The set owns no reference to its members: one that is released stops
// being resident.
class ResidencySet : public NS::Referencing<ResidencySet> {
 public:
  void addAllocation(const MTL::Allocation* allocation);
  void removeAllocation(const MTL::Allocation* allocation);
  void commit();

 protected:
  ResidencySet() = default;
};

}  // namespace MTL
