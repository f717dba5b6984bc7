#include "io/partial_file.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstdio>
#include <system_error>
#include <utility>

#include "base/error.hpp"

namespace mtlqwen {
namespace {

constexpr mode_t kOwnerOnly = 0600;  // prompts are nobody else's business

[[noreturn]] void fail_errno(const std::filesystem::path& path, const char* action, int error) {
  const std::string what = concat("[file] ", path.string(), ": cannot be ", action, " (got ",
                                  std::generic_category().message(error), ")");
  if (error == ENOSPC || error == EDQUOT || error == EFBIG) {
    throw CapacityError(concat(what, "; make room, or name another place"));
  }
  throw FormatError(concat(what, "; check the path and its rights"));
}

// Calls again what a signal has interrupted.
template <class Call>
auto retried(const Call& call) {
  auto result = call();
  while (result < 0 && errno == EINTR) result = call();
  return result;
}

// To the medium itself: on a Mac fsync() stops at the drive's own cache.
int sync_file(int file) {
#ifdef F_FULLFSYNC
  if (::fcntl(file, F_FULLFSYNC) == 0) return 0;
#endif
  return retried([file] { return ::fsync(file); });
}

bool try_lock(const Descriptor& file) {
  return retried([&] { return ::flock(file.id(), LOCK_EX | LOCK_NB); }) == 0;
}

// Whether the path still names the open file: before it was locked its last owner may have renamed
// or removed it.
bool is_at(const Descriptor& file, const std::filesystem::path& path) {
  struct stat open_file{};
  struct stat named{};
  return ::fstat(file.id(), &open_file) == 0 && ::lstat(path.c_str(), &named) == 0 &&
         open_file.st_dev == named.st_dev && open_file.st_ino == named.st_ino;
}

bool is_regular(const Descriptor& file) {
  struct stat status{};
  return ::fstat(file.id(), &status) == 0 && S_ISREG(status.st_mode);
}

// A rename would put a file in the place of a device, which is then gone for all.
void require_replaceable(const std::filesystem::path& target) {
  struct stat status{};
  if (::stat(target.c_str(), &status) != 0 || S_ISREG(status.st_mode)) return;
  throw FormatError(
      concat("[file] ", target.string(), ": is there, and no regular file; name another"));
}

// O_NOFOLLOW: a link planted in a shared directory must not choose what is written over.
// O_NONBLOCK: opening a FIFO would wait.
Descriptor open_partial(const std::filesystem::path& partial, int flags) {
  constexpr int kFlags = O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK;
  return Descriptor(retried([&] { return ::open(partial.c_str(), kFlags | flags, kOwnerOnly); }));
}

}  // namespace

PartialFile::PartialFile(std::filesystem::path target, Descriptor file)
    : target_(std::move(target)), file_(std::move(file)) {}

std::filesystem::path PartialFile::partial_path(const std::filesystem::path& target) {
  std::filesystem::path partial = target;
  return partial += ".partial";
}

std::optional<PartialFile> PartialFile::open(const std::filesystem::path& target, uint64_t bytes) {
  require_replaceable(target);
  const std::filesystem::path partial = partial_path(target);
  while (true) {
    Descriptor file = open_partial(partial, O_CREAT);
    if (!file.is_open()) fail_errno(partial, "made", errno);
    if (!is_regular(file)) fail_errno(partial, "made", EEXIST);
    if (!try_lock(file)) {
      if (errno == EWOULDBLOCK) return std::nullopt;
      fail_errno(partial, "locked", errno);
    }
    if (!is_at(file, partial)) continue;
    PartialFile made(target, std::move(file));
    const auto resize = [&](uint64_t size) {
      return retried([&] { return ::ftruncate(made.file_.id(), static_cast<off_t>(size)); });
    };
    if (bytes > static_cast<uint64_t>(INT64_MAX)) fail_errno(partial, "made", EFBIG);
    if (resize(0) != 0 || resize(bytes) != 0) fail_errno(partial, "made", errno);
    return made;
  }
}

PartialFile::~PartialFile() {
  const std::filesystem::path partial = partial_path(target_);
  if (file_.is_open() && is_at(file_, partial)) ::unlink(partial.c_str());
}

void PartialFile::write(std::span<const uint8_t> bytes, uint64_t offset) {
  while (!bytes.empty()) {
    const ssize_t written = retried([&] {
      return ::pwrite(file_.id(), bytes.data(), bytes.size(), static_cast<off_t>(offset));
    });
    if (written <= 0) fail_errno(target_, "written", written < 0 ? errno : ENOSPC);
    bytes = bytes.subspan(static_cast<uint64_t>(written));
    offset += static_cast<uint64_t>(written);
  }
}

void PartialFile::publish() {
  if (sync_file(file_.id()) != 0) fail_errno(target_, "written", errno);
  if (::rename(partial_path(target_).c_str(), target_.c_str()) != 0) {
    fail_errno(target_, "replaced", errno);
  }
  file_ = Descriptor();
  sync_directory(target_.parent_path());
}

bool PartialFile::remove_stale(const std::filesystem::path& partial) {
  const Descriptor file = open_partial(partial, 0);
  return file.is_open() && is_regular(file) && try_lock(file) && is_at(file, partial) &&
         ::unlink(partial.c_str()) == 0;
}

// Some file systems have nothing to synchronise there and say EINVAL.
void sync_directory(const std::filesystem::path& directory) {
  const std::filesystem::path path = directory.empty() ? "." : directory;
  const Descriptor file(
      retried([&] { return ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_DIRECTORY); }));
  if (!file.is_open()) fail_errno(path, "opened", errno);
  if (sync_file(file.id()) != 0 && errno != EINVAL && errno != ENOTSUP) {
    fail_errno(path, "written", errno);
  }
}

}  // namespace mtlqwen
