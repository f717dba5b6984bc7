#include "engine/archive.hpp"

#include <exception>
#include <utility>

namespace mtlqwen {

namespace {

constexpr size_t kMostWaiting = 2;  // states in memory, beside the one that is written

}  // namespace

Archive::Archive(const std::string& directory, uint64_t max_bytes, const StateOrigin& origin)
    : n_planes_(origin.n_planes), store_(directory, max_bytes, origin), thread_([this] { run(); }) {
}

Archive::~Archive() {
  {
    const std::lock_guard lock(mutex_);
    stops_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

bool Archive::has_room() {
  const std::lock_guard lock(mutex_);
  return waiting_.size() < kMostWaiting;
}

bool Archive::wait_for_room(std::chrono::milliseconds limit) {
  std::unique_lock lock(mutex_);
  return changed_.wait_for(lock, limit, [&] { return waiting_.size() < kMostWaiting; });
}

void Archive::write(std::vector<int32_t> token_ids, HostState state) {
  {
    const std::lock_guard lock(mutex_);
    waiting_.push_back({.token_ids = std::move(token_ids), .state = std::move(state)});
  }
  changed_.notify_all();
}

Archive::Counters Archive::counters() {
  const std::lock_guard lock(mutex_);
  return counters_;
}

// A cache that cannot be written is no error of any request: it is counted.
void Archive::run() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [&] { return stops_ || !waiting_.empty(); });
    if (waiting_.empty()) return;
    const Waiting next = std::move(waiting_.front());
    waiting_.pop_front();
    lock.unlock();
    changed_.notify_all();
    bool written = false;
    bool failed = false;
    try {
      written = store_.put(next.token_ids, next.state.pieces(n_planes_));
    } catch (const std::exception&) {
      failed = true;
    }
    lock.lock();
    counters_.written += written ? 1 : 0;
    counters_.failed += failed ? 1 : 0;
  }
}

}  // namespace mtlqwen
