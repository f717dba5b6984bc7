#include "cache/disk_space.hpp"

#include <fcntl.h>
#include <sys/file.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <string_view>
#include <system_error>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "io/checkpoint_file.hpp"

namespace mtlqwen {
namespace {

namespace fs = std::filesystem;

constexpr std::chrono::milliseconds kLockPause{1};
constexpr int kLockTries = 200;  // an eviction among 5,000 files takes some 20 ms

[[noreturn]] void fail_errno(const fs::path& path, const char* action, int error) {
  throw FormatError(concat("[cache] ", path.string(), ": cannot be ", action, " (got ",
                           std::generic_category().message(error),
                           "); check cache_dir and its rights"));
}

struct Candidate {
  fs::file_time_type used;
  uint64_t bytes;
  fs::path path;
};

// Calls visit(entry) for each entry; directories and entries may vanish meanwhile.
template <class Visit>
void for_each_entry(const fs::path& directory, const Visit& visit) {
  std::error_code error;
  for (fs::directory_iterator entry(directory, error), end; !error && entry != end;
       entry.increment(error)) {
    visit(*entry);
  }
}

// Directories of other names are not ours.
bool is_fingerprint(std::string_view name) {
  return name.size() == 2 * sizeof(Fingerprint) &&
         name.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

class Census {
 public:
  void add(const fs::directory_entry& entry) {
    const fs::path extension = entry.path().extension();
    const bool partial = extension == ".partial";
    if (!partial && extension != kCheckpointSuffix) return;
    std::error_code error;
    if (entry.is_symlink(error) || !entry.is_regular_file(error)) return;
    if (partial && PartialFile::remove_stale(entry.path())) return;
    const uint64_t bytes = entry.file_size(error);
    if (error) return;
    if (partial) {
      partial_bytes_ += bytes;
      return;
    }
    whole_bytes_ += bytes;
    candidates_.push_back({{}, bytes, entry.path()});
  }

  bool evict_to(uint64_t max_bytes) {
    if (partial_bytes_ > max_bytes) return false;
    if (partial_bytes_ + whole_bytes_ <= max_bytes) return true;
    sort_by_use();
    for (const Candidate& candidate : candidates_) {
      std::error_code error;
      fs::remove(candidate.path, error);
      if (error) continue;  // what cannot be removed still takes its bytes
      whole_bytes_ -= candidate.bytes;
      if (partial_bytes_ + whole_bytes_ <= max_bytes) return true;
    }
    return false;
  }

 private:
  // The times cost another look at each file, so they are read only where something has to go. What
  // has vanished comes first.
  void sort_by_use() {
    for (Candidate& candidate : candidates_) {
      std::error_code error;
      candidate.used = fs::last_write_time(candidate.path, error);
    }
    std::ranges::sort(candidates_, {}, [](const Candidate& c) { return std::tie(c.used, c.path); });
  }

  std::vector<Candidate> candidates_;
  uint64_t whole_bytes_ = 0;
  uint64_t partial_bytes_ = 0;
};

}  // namespace

std::optional<DirectoryLock> DirectoryLock::take(const fs::path& directory) {
  const fs::path path = directory / "lock";
  Descriptor file(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!file.is_open()) fail_errno(path, "opened", errno);
  for (int i = 0; i < kLockTries; ++i) {
    if (::flock(file.id(), LOCK_EX | LOCK_NB) == 0) return DirectoryLock(std::move(file));
    if (errno != EWOULDBLOCK && errno != EINTR) fail_errno(path, "locked", errno);
    std::this_thread::sleep_for(kLockPause);
  }
  return std::nullopt;
}

bool evict_to(const fs::path& directory, uint64_t max_bytes) {
  Census census;
  for_each_entry(directory, [&](const fs::directory_entry& model) {
    std::error_code error;
    if (!is_fingerprint(model.path().filename().native())) return;
    if (model.is_symlink(error) || !model.is_directory(error)) return;
    for_each_entry(model.path(), [&](const fs::directory_entry& file) { census.add(file); });
  });
  return census.evict_to(max_bytes);
}

}  // namespace mtlqwen
