// The GPU as the runtime sees it: allocation, residency, the queue, pipelines and sparse mappings.
#pragma once
#include <Metal/Metal.hpp>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "gpu/buffer.hpp"
#include "gpu/heap.hpp"
#include "gpu/pipeline.hpp"
#include "gpu/timer.hpp"

namespace mtlqwen {

// One run of tiles of a sparse buffer, to be mapped from a heap or unmapped. All counts are tiles
// of the buffer's page size.
struct MappingRun {
  uint64_t buffer_tile = 0;
  uint64_t n_tiles = 0;
  uint64_t heap_tile = 0;  // ignored when unmapping
};

// What the system's device can hold without hurting other programs; it need not be ours yet. Throws
// DeviceError where there is none.
[[nodiscard]] uint64_t recommended_bytes();

// Owns the Metal device, its Metal 4 queue, one residency set and the pipeline cache. All memory
// that the engine owns comes from here and is counted in allocated_bytes(). One thread at a time,
// but for request_abort().
class Device {
 public:
  explicit Device(const std::string& library_path);  // throws DeviceError
  ~Device();
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  [[nodiscard]] std::string name() const;
  [[nodiscard]] uint64_t max_buffer_bytes() const;
  // As the function of this name.
  [[nodiscard]] uint64_t recommended_bytes() const;
  // Threadgroups run on CPU cores: launch tables then prefer few threads with much work each.
  [[nodiscard]] bool is_software() const;
  [[nodiscard]] bool prefers_int16() const;
  [[nodiscard]] std::string arithmetic_name() const;  // see platform.hpp
  // See platform.hpp; between rounds.
  void set_threads(uint32_t n);
  [[nodiscard]] uint32_t n_threads() const;
  [[nodiscard]] uint64_t allocated_bytes() const { return allocated_bytes_; }

  // Throw DeviceError where Metal returns null.
  [[nodiscard]] Buffer new_buffer(uint64_t bytes, Storage storage, std::string_view label);
  // Wraps whole pages without a copy; they must stay mapped while the Buffer lives. Counted like
  // any other.
  [[nodiscard]] Buffer wrap_pages(void* pages, uint64_t bytes, std::string_view label);

  // Placement-sparse memory: address space without memory behind it, heaps that hold tiles, and the
  // mapping between them.
  [[nodiscard]] Buffer new_sparse_buffer(uint64_t bytes, uint64_t page_bytes,
                                         std::string_view label);
  // Throws CapacityError where Metal returns null: heaps are made while others work.
  [[nodiscard]] Heap new_heap(uint64_t bytes, uint64_t page_bytes, std::string_view label);
  // Queues mappings (heap given) or unmappings (heap null) of one buffer; rounds that begin
  // afterwards see them. Nothing that uses these tiles may be in flight.
  void update_mappings(const Buffer& buffer, const Heap* heap, std::span<const MappingRun> runs);

  // Any thread. Throws DeviceError where the device has no timestamps.
  [[nodiscard]] std::shared_ptr<Timer> new_timer() const;

  [[nodiscard]] Pipelines& pipelines() { return *pipelines_; }

  // Stops the round in flight, and each one that follows, early (their Commands throw Aborted)
  // until clear_abort(). Any thread. A request that comes too late for its round would stop the
  // next: clear before you begin one.
  void request_abort();
  void clear_abort();
  // The GPU never answered: every later round throws, and memory that it may still use is not given
  // back.
  [[nodiscard]] bool lost() const { return lost_; }

 private:
  friend class Buffer;
  friend class Commands;
  friend class Heap;
  void add_resident(const MTL::Allocation* allocation, uint64_t bytes);
  void remove_resident(const MTL::Allocation* allocation, uint64_t bytes);
  void drain_mappings() noexcept;  // waits until all that was queued has happened
  void commit_residency();         // no-op unless membership changed; nothing may be in flight

  NS::SharedPtr<MTL::Device> device_;
  NS::SharedPtr<MTL4::CommandQueue> queue_;
  NS::SharedPtr<MTL::ResidencySet> residency_;
  NS::SharedPtr<MTL::SharedEvent> mapped_;  // signalled with the count of mapping updates
  std::unique_ptr<Pipelines> pipelines_;
  uint64_t allocated_bytes_ = 0;
  uint64_t mapping_updates_ = 0;  // so far; a round that saw fewer begins with a barrier
  uint64_t drained_updates_ = 0;  // of them, known to have happened
  std::vector<MTL4::UpdateSparseBufferMappingOperation> operations_;  // update_mappings()' scratch
  bool residency_changed_ = false;
  bool lost_ = false;
};

}  // namespace mtlqwen
