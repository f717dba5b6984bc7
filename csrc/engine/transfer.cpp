#include "engine/transfer.hpp"

#include <algorithm>
#include <cstring>

#include "gpu/foundation.hpp"

namespace mtlqwen {

namespace {

// The bundles of a checkpoint stand in the window while this lives.
class Window {
 public:
  Window(KvPool& kv_pool, std::span<const uint32_t> bundles) : kv_pool_(kv_pool) {
    kv_pool_.map_window(bundles);
  }
  ~Window() { kv_pool_.unmap_window(); }
  Window(const Window&) = delete;
  Window& operator=(const Window&) = delete;

 private:
  KvPool& kv_pool_;
};

}  // namespace

StatePieces HostState::pieces(uint32_t n_planes) const {
  StatePieces pieces{.bank = {bytes.get(), bank_bytes}, .planes = {}};
  for (uint32_t i = 0; i < n_planes; ++i) {
    pieces.planes.emplace_back(bytes.get() + bank_bytes + i * plane_bytes, plane_bytes);
  }
  return pieces;
}

Transfer::Transfer(Device& device, KvPool& kv_pool, GdnBanks& banks, const StateOrigin& origin)
    : kv_pool_(kv_pool), banks_(banks), n_planes_(origin.n_planes),
      token_bytes_(origin.token_bytes), bank_bytes_(origin.bank_bytes),
      staging_(device.new_buffer(kStagingBytes, Storage::kShared, "checkpoint staging")),
      commands_(device) {}

HostState Transfer::read(uint32_t n_tokens, uint32_t bank, std::span<const uint32_t> bundles) {
  HostState state{.n_tokens = n_tokens,
                  .bank_bytes = bank_bytes_,
                  .plane_bytes = n_tokens * token_bytes_,
                  .bytes = {}};
  state.bytes =
      std::make_unique_for_overwrite<uint8_t[]>(bank_bytes_ + n_planes_ * state.plane_bytes);
  uint8_t* to = state.bytes.get();
  read_region(bank_region(bank), to, bank_bytes_);
  const Window window(kv_pool_, bundles);
  for (uint32_t plane = 0; plane < n_planes_; ++plane) {
    read_region(plane_region(plane), to + bank_bytes_ + plane * state.plane_bytes,
                state.plane_bytes);
  }
  return state;
}

void Transfer::write(const CheckpointFile& file, uint32_t bank, std::span<const uint32_t> bundles) {
  write_region(bank_region(bank), file.bank());
  const Window window(kv_pool_, bundles);
  for (uint32_t plane = 0; plane < n_planes_; ++plane) {
    write_region(plane_region(plane), file.plane(plane));
  }
}

Transfer::Region Transfer::bank_region(uint32_t bank) const {
  return {.buffer = &banks_.buffer(), .offset = bank * banks_.bank_floats() * sizeof(float)};
}

Transfer::Region Transfer::plane_region(uint32_t plane) const {
  const WindowPlane window = kv_pool_.window(plane);
  return {.buffer = window.buffer, .offset = window.offset};
}

void Transfer::read_region(const Region& from, uint8_t* to, uint64_t bytes) {
  for (uint64_t done = 0; done < bytes;) {
    const uint64_t part = std::min(kStagingBytes, bytes - done);
    const AutoreleaseScope scope;
    commands_.begin();
    commands_.copy(*from.buffer, from.offset + done, staging_, 0, part);
    commands_.commit_and_wait();
    std::memcpy(to + done, staging_.contents(), part);
    done += part;
  }
}

void Transfer::write_region(const Region& to, std::span<const uint8_t> from) {
  for (uint64_t done = 0; done < from.size();) {
    const uint64_t part = std::min<uint64_t>(kStagingBytes, from.size() - done);
    std::memcpy(staging_.contents(), from.data() + done, part);
    const AutoreleaseScope scope;
    commands_.begin();
    commands_.copy(staging_, 0, *to.buffer, to.offset + done, part);
    commands_.commit_and_wait();
    done += part;
  }
}

}  // namespace mtlqwen
