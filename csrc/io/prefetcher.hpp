// Reads mapped files ahead of those who need them.
#pragma once
#include <atomic>
#include <cstdint>
#include <span>
#include <thread>
#include <vector>

namespace mtlqwen {

// Has a thread of its own, until all is read or this goes. The pages must stay mapped as long. Only
// a help: where the system refuses, they are read when they are needed, as without it.
class Prefetcher {
 public:
  explicit Prefetcher(std::vector<std::span<uint8_t>> ranges);  // of whole pages
  ~Prefetcher();
  Prefetcher(const Prefetcher&) = delete;
  Prefetcher& operator=(const Prefetcher&) = delete;

 private:
  void work(const std::vector<std::span<uint8_t>>& ranges);

  std::atomic<bool> stopping_{false};
  std::thread thread_;
};

}  // namespace mtlqwen
