// One allocation and all that is known about it. Buffers and heaps are thin objects around it.
#pragma once
#include <Metal/MTLResource.hpp>
#include <array>
#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <span>
#include <string>
#include <vector>

#include "hostmetal/mapping_runs.hpp"

namespace mtlqwen::hostmetal {

class HostDevice;

// Poisoned memory: a NaN in every float format, -1 in every integer.
inline constexpr char kPoison = '\xFF';
inline constexpr uint64_t kPoisonBytes = uint64_t{16} << 10;  // the smallest tile

enum class MemoryKind : uint8_t { kOwned, kWrapped, kSparse, kHeap };

// Owned by its Metal object, and for a while by the command buffers and mappings that name it, so that use after release is
// an error and not a crash.
struct Memory {
  Memory(HostDevice& device, MemoryKind kind, uint64_t bytes);
  ~Memory();
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  [[nodiscard]] bool contains(uint64_t first, uint64_t n_bytes) const {
    return first <= bytes && n_bytes <= bytes - first;
  }
  [[nodiscard]] std::string label() const;
  [[nodiscard]] std::string name() const;  // "buffer 'weights'"
  void set_label(const std::string& text);
  // Guarded memory that the device owns ends, or begins, in the middle of a page: the rest of its pages is filled, and a
  // kernel that writes there is found afterwards.
  void fill_margins();
  [[nodiscard]] bool has_margins_intact() const;
  void poison();  // all of it; needs memory that the device owns

  const NS::SharedPtr<HostDevice> device;
  const uint64_t id;  // never used again, unlike addresses
  const MemoryKind kind;
  const uint64_t bytes;
  void* base = nullptr;     // null for a heap
  int heap = -1;            // of a heap: the executor's name for it
  uint64_t page_bytes = 0;  // a sparse buffer's tile; the largest tile that a heap serves
  bool is_private = false;  // contents() is null
  std::atomic<bool> released{false};

  // Of a sparse buffer, under HostDevice::mapping_mutex.
  MappingRuns runs;
  uint64_t last_update = 0;  // HostDevice's count of mapping updates when it last changed
  // Of a heap, under the same lock: parts of kPoisonBytes that were mapped once; used under MTLQWEN_HOST_CHECK=poison.
  std::vector<bool> poisoned;
  std::atomic<bool> is_fresh{true};  // of a heap: nothing of it was mapped yet

 private:
  // What lies in the memory's first and last page in front of it and behind it.
  [[nodiscard]] std::array<std::span<char>, 2> margins() const;

  mutable std::mutex label_mutex_;
  std::string label_;
};

// The way from a Metal object to its memory; null for null and for pipelines.
struct MemoryOf {
  static std::shared_ptr<Memory> get(const MTL::Allocation* allocation);
};

// All allocations of a device that have addresses, by address. Thread safe.
class AddressTable {
 public:
  void add(std::shared_ptr<Memory> memory);
  void remove(const Memory& memory);
  [[nodiscard]] std::shared_ptr<Memory> find(uint64_t address) const;  // null: nobody's
  // Where an address is, in words: in, in front of or behind an allocation.
  [[nodiscard]] std::string describe(uint64_t address) const;

 private:
  mutable std::shared_mutex mutex_;
  std::map<uint64_t, std::shared_ptr<Memory>> by_base_;  // the second owner, until remove()
};

}  // namespace mtlqwen::hostmetal
