// The cache room on a device, and patterns of floats that are put into its slots and found again.
#pragma once
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "cache/bundle_pool.hpp"
#include "cache/kv_pool.hpp"
#include "check.hpp"
#include "gpu/commands.hpp"
#include "row_copier.hpp"

namespace mtlqwen::testing {

inline constexpr uint64_t kKiB = 1024;

// 2 attention layers, 1 kv head of 64: a block is one 16 KiB tile of each of 4 planes.
inline constexpr KvShape kSmall{.n_planes = 4, .token_bytes = 128, .slots = 3, .context = 1000};
inline constexpr uint64_t kSmallBundle = 4 * 16 * kKiB;

inline std::vector<float> ramp(size_t n, float first) {
  std::vector<float> values;
  values.reserve(n);
  for (size_t i = 0; i < n; ++i) values.push_back(first + static_cast<float>(i));
  return values;
}

// Moves a pattern of its own for each tag through kernels.
class KvProbe {
 public:
  KvProbe(Device& device, const KvPool& pool) : pool_(pool), commands_(device), copier_(device) {}

  void write(uint32_t plane, uint32_t slot, uint32_t position, float tag) {
    copier_.store(commands_, address(plane, slot, position), pattern(tag));
  }
  [[nodiscard]] bool holds(uint32_t plane, uint32_t slot, uint32_t position, float tag) {
    return found(address(plane, slot, position), tag);
  }
  void write_window(uint32_t plane, uint32_t position, float tag) {
    copier_.store(commands_, window_address(plane, position), pattern(tag));
  }
  [[nodiscard]] bool window_holds(uint32_t plane, uint32_t position, float tag) {
    return found(window_address(plane, position), tag);
  }

  // A pass of nothing but the copies.
  void run(const std::vector<BlockCopy>& copies) {
    commands_.begin();
    for (const BlockCopy& copy : copies) {
      commands_.copy(*copy.buffer, copy.from, *copy.buffer, copy.to, copy.bytes);
    }
    commands_.commit_and_wait();
  }

  [[nodiscard]] uint64_t address(uint32_t plane, uint32_t slot, uint32_t position) const {
    const uint64_t token = uint64_t{slot} * pool_.slot_tokens() + position;
    return pool_.plane_address(plane) + token * pool_.layout().token_bytes();
  }
  [[nodiscard]] uint64_t window_address(uint32_t plane, uint32_t position) const {
    const WindowPlane window = pool_.window(plane);
    return window.buffer->span().address + window.offset + position * pool_.layout().token_bytes();
  }

 private:
  [[nodiscard]] bool found(uint64_t place, float tag) {
    const std::vector<float> want = pattern(tag);
    const std::vector<float> got = copier_.load(commands_, place, want.size());
    return std::ranges::equal(got, want);
  }
  [[nodiscard]] size_t floats() const { return pool_.layout().token_bytes() / sizeof(float); }
  [[nodiscard]] std::vector<float> pattern(float tag) const {
    return ramp(floats(), 1000.0F * tag);
  }

  const KvPool& pool_;
  Commands commands_;
  RowCopier copier_;
};

struct KvMemory {
  Device device;
  BundlePool pool;
  KvPool kv;
  KvProbe probe{device, kv};

  explicit KvMemory(const std::string& library_path, const KvShape& shape = kSmall,
                    uint64_t max_bytes = BundlePool::kNoLimit)
      : device(library_path), pool(device, bundle_shape(shape)), kv(device, pool, shape) {
    constexpr uint32_t kForOthers = 24;  // bundles that no block of a slot is for
    pool.set_limit(max_bytes, shape.slots * kv.layout().slot_blocks() + kForOthers);
  }

  // `others`: one entry for each owner of a bundle beside the slots.
  void check_integrity(std::span<const uint32_t> others = {}) const {
    std::vector<uint32_t> refs = pool.no_refs();
    kv.add_refs(refs);
    for (const uint32_t bundle : others) ++refs.at(bundle);
    pool.check_integrity(refs);
  }

  // Queued mappings have happened once a later round is done.
  void settle() { probe.run({}); }
};

inline std::vector<uint32_t> copy_of(std::span<const uint32_t> bundles) {
  return {bundles.begin(), bundles.end()};
}

// Whether a byte can be read: asked of the operating system, which answers where a load would crash.
inline bool is_readable(uint64_t address) {
  int ends[2];
  check_equal(::pipe(ends), 0);
  const bool readable = ::write(ends[1], reinterpret_cast<const void*>(address), 1) == 1;
  ::close(ends[0]);
  ::close(ends[1]);
  return readable;
}

}  // namespace mtlqwen::testing
