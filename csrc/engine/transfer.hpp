// Checkpoints between the device's memory and the CPU's.
#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "cache/gdn_banks.hpp"
#include "cache/kv_pool.hpp"
#include "gpu/commands.hpp"
#include "io/checkpoint_file.hpp"

namespace mtlqwen {

// A state as files have it: the bank, then n_tokens of each plane.
struct HostState {
  uint32_t n_tokens = 0;
  uint64_t bank_bytes = 0;
  uint64_t plane_bytes = 0;  // of n_tokens
  std::unique_ptr<uint8_t[]> bytes;

  [[nodiscard]] StatePieces pieces(uint32_t n_planes) const;
};

// Private memory is copied through a staging buffer, piece by piece. Calls stand between passes; one
// thread at a time.
class Transfer {
 public:
  static constexpr uint64_t kStagingBytes = 256ULL << 10;

  Transfer(Device& device, KvPool& kv_pool, GdnBanks& banks, const StateOrigin& origin);

  // Bank and bundles of a checkpoint of n_tokens. Throws CapacityError, DeviceError.
  [[nodiscard]] HostState read(uint32_t n_tokens, uint32_t bank, std::span<const uint32_t> bundles);
  // A file's state into a bank and bundles that nobody else knows. Throws FormatError where the file
  // is damaged; what has been written by then is undefined.
  void write(const CheckpointFile& file, uint32_t bank, std::span<const uint32_t> bundles);

 private:
  // A run of bytes in a buffer of the device.
  struct Region {
    const Buffer* buffer = nullptr;
    uint64_t offset = 0;
  };
  [[nodiscard]] Region bank_region(uint32_t bank) const;
  [[nodiscard]] Region plane_region(uint32_t plane) const;  // of the window
  void read_region(const Region& from, uint8_t* to, uint64_t bytes);
  void write_region(const Region& to, std::span<const uint8_t> from);

  KvPool& kv_pool_;
  GdnBanks& banks_;
  uint32_t n_planes_;
  uint64_t token_bytes_;
  uint64_t bank_bytes_;
  Buffer staging_;
  Commands commands_;
};

}  // namespace mtlqwen
