// The cache on disk, and the thread that writes it.
#pragma once
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "cache/disk_store.hpp"
#include "engine/transfer.hpp"

namespace mtlqwen {

// States wait here for the disk, which may take far longer than a pass. Thread safe.
class Archive {
 public:
  // Throws what DiskStore throws.
  Archive(const std::string& directory, uint64_t max_bytes, const StateOrigin& origin);
  ~Archive();  // writes what waits
  Archive(const Archive&) = delete;
  Archive& operator=(const Archive&) = delete;

  [[nodiscard]] DiskStore& store() { return store_; }
  [[nodiscard]] bool has_room();  // for another state
  [[nodiscard]] bool wait_for_room(std::chrono::milliseconds limit);
  // Takes a state whether there is room or not: memory is bounded by who asks before.
  void write(std::vector<int32_t> token_ids, HostState state);

  struct Counters {
    uint64_t written = 0;
    uint64_t failed = 0;  // the disk was full, or would not be written
  };
  [[nodiscard]] Counters counters();

 private:
  struct Waiting {
    std::vector<int32_t> token_ids;
    HostState state;
  };
  void run();

  const uint32_t n_planes_;
  DiskStore store_;
  std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  std::deque<Waiting> waiting_;
  Counters counters_;
  bool stops_ = false;
  std::thread thread_;  // last: it uses all of the above
};

}  // namespace mtlqwen
