#include "hostmetal/memory.hpp"

#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <iterator>
#include <mutex>
#include <utility>

#include "base/error.hpp"
#include "base/math.hpp"
#include "hostmetal/device.hpp"
#include "hostmetal/error.hpp"
#include "hostmetal/sparse.hpp"

namespace mtlqwen::hostmetal {
namespace {

constexpr char kMargin = '\xA5';
constexpr uint64_t kNear = uint64_t{1} << 20;  // a miss by less is told as one of that buffer

}  // namespace

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

std::array<std::span<char>, 2> Memory::margins() const {
  const auto page = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  char* first = static_cast<char*>(base);
  const uint64_t in_front = reinterpret_cast<uint64_t>(first) % page;
  const uint64_t behind = align_up(in_front + bytes, page) - in_front - bytes;
  return {std::span(first - in_front, in_front), std::span(first + bytes, behind)};
}

void Memory::fill_margins() {
  for (const std::span<char> margin : margins()) std::ranges::fill(margin, kMargin);
}

bool Memory::has_margins_intact() const {
  return std::ranges::all_of(margins(), [](std::span<char> margin) {
    return std::ranges::all_of(margin, [](char byte) { return byte == kMargin; });
  });
}

void Memory::poison() { std::memset(base, kPoison, bytes); }

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

std::string AddressTable::describe(uint64_t address) const {
  if (const std::shared_ptr<Memory> memory = find(address)) {
    const uint64_t byte = address - reinterpret_cast<uint64_t>(memory->base);
    const std::string where = concat(memory->name(), ", byte ", byte);
    if (memory->kind != MemoryKind::kSparse) return where;
    const uint64_t tile = byte / memory->page_bytes;
    const std::lock_guard lock(memory->device->mapping_mutex);
    if (memory->runs.is_mapped(tile, 1)) return where;
    return concat("unmapped sparse tile ", tile, " of ", where);
  }
  const std::shared_lock lock(mutex_);
  const auto next = by_base_.upper_bound(address);
  if (next != by_base_.begin()) {
    const auto& [base, memory] = *std::prev(next);
    const uint64_t past = address - base - memory->bytes;
    if (past < kNear) return concat(past, " bytes past the end of ", memory->name());
  }
  if (next != by_base_.end() && next->first - address <= kNear) {
    return concat(next->first - address, " bytes in front of ", next->second->name());
  }
  return concat("address ", reinterpret_cast<const void*>(address), ", in no buffer");
}

}  // namespace mtlqwen::hostmetal
