#include "io/prefetcher.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <system_error>
#include <utility>

namespace mtlqwen {
namespace {

// Large beside the time that the system takes for a call, small beside what a closing engine may wait for.
constexpr size_t kChunkBytes = size_t{4} << 20;

void read_pages(std::span<uint8_t> pages) {
#ifdef MADV_POPULATE_READ  // Linux 5.14; it maps the pages, too
  if (::madvise(pages.data(), pages.size(), MADV_POPULATE_READ) == 0) return;
#endif
  ::madvise(pages.data(), pages.size(), MADV_WILLNEED);
}

}  // namespace

Prefetcher::Prefetcher(std::vector<std::span<uint8_t>> ranges) {
  if (ranges.empty()) return;
  try {
    thread_ = std::thread([this, own = std::move(ranges)] { work(own); });
  } catch (const std::system_error&) {
    // No thread to be had.
  }
}

Prefetcher::~Prefetcher() {
  stopping_ = true;
  if (thread_.joinable()) thread_.join();
}

void Prefetcher::work(const std::vector<std::span<uint8_t>>& ranges) {
  for (std::span<uint8_t> left : ranges) {
    while (!left.empty()) {
      if (stopping_) return;
      const size_t bytes = std::min(left.size(), kChunkBytes);
      read_pages(left.first(bytes));
      left = left.subspan(bytes);
    }
  }
}

}  // namespace mtlqwen
