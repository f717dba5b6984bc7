#include "hostmetal/memory.hpp"

#include <mutex>
#include <utility>

#include "base/error.hpp"
#include "hostmetal/device.hpp"
#include "hostmetal/error.hpp"
#include "hostmetal/sparse.hpp"

namespace mtlqwen::hostmetal {

Memory::Memory(HostDevice& host_device, MemoryKind memory_kind, uint64_t n_bytes)
    : device(NS::RetainPtr(&host_device)), id(host_device.next_id.fetch_add(1)), kind(memory_kind),
      bytes(n_bytes) {
  if (kind != MemoryKind::kSparse) device->allocated_bytes += bytes;
}

Memory::~Memory() {
  if (kind != MemoryKind::kSparse) device->allocated_bytes -= bytes;
  if (kind == MemoryKind::kSparse && base) forget_mappings(*this);
  if (heap >= 0) device->executor().destroy_heap(heap);
  if (base && kind != MemoryKind::kWrapped) device->executor().free(base, bytes);
}

std::string Memory::label() const {
  const std::lock_guard lock(label_mutex_);
  return label_;
}

std::string Memory::name() const {
  const char* what = kind == MemoryKind::kHeap     ? "heap"
                     : kind == MemoryKind::kSparse ? "sparse buffer"
                                                   : "buffer";
  return concat(what, " '", label(), "'");
}

void Memory::set_label(const std::string& text) {
  const std::lock_guard lock(label_mutex_);
  label_ = text;
}

void AddressTable::add(std::shared_ptr<Memory> memory) {
  const std::unique_lock lock(mutex_);
  by_base_.insert_or_assign(reinterpret_cast<uint64_t>(memory->base), std::move(memory));
}

void AddressTable::remove(const Memory& memory) {
  const std::unique_lock lock(mutex_);
  const auto found = by_base_.find(reinterpret_cast<uint64_t>(memory.base));
  // Wrapped pages may have been wrapped again.
  if (found != by_base_.end() && found->second.get() == &memory) by_base_.erase(found);
}

std::shared_ptr<Memory> AddressTable::find(uint64_t address) const {
  const std::shared_lock lock(mutex_);
  auto found = by_base_.upper_bound(address);
  if (found == by_base_.begin()) return nullptr;
  --found;
  return address - found->first < found->second->bytes ? found->second : nullptr;
}

}  // namespace mtlqwen::hostmetal
