#include "io/mapped_file.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>
#include <utility>

#include "base/error.hpp"
#include "base/math.hpp"
#include "io/descriptor.hpp"

namespace mtlqwen {
namespace {

[[noreturn]] void fail_errno(const std::filesystem::path& path, const char* action, int error) {
  throw FormatError(concat("[file] ", path.string(), ": cannot be ", action, " (got ",
                           std::generic_category().message(error), "); check the path"));
}

}  // namespace

uint64_t os_page_bytes() { return static_cast<uint64_t>(::sysconf(_SC_PAGESIZE)); }

MappedFile::MappedFile(const std::filesystem::path& path) : path_(path) {
  // O_NONBLOCK: opening a FIFO would wait for a writer.
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!file.is_open()) fail_errno(path, "opened", errno);
  struct stat status{};
  if (::fstat(file.id(), &status) != 0) fail_errno(path, "examined", errno);
  if (!S_ISREG(status.st_mode)) {
    const char* kind = S_ISDIR(status.st_mode) ? "a directory" : "a special file";
    throw FormatError(concat("[file] ", path.string(), ": cannot be read (got ", kind,
                             ", want a file); name the weight file itself"));
  }
  if (status.st_size == 0) {
    throw FormatError(concat("[file] ", path.string(), ": is empty; download it again"));
  }
  size_ = static_cast<uint64_t>(status.st_size);
  mapped_size_ = align_up(size_, os_page_bytes());
  void* pages = ::mmap(nullptr, mapped_size_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_NORESERVE,
                       file.id(), 0);
  if (pages == MAP_FAILED) fail_errno(path, "mapped", errno);
  data_ = static_cast<uint8_t*>(pages);
#ifdef MADV_HUGEPAGE
  // What is not in the page cache yet is then read into huge pages, which passes read a tenth
  // faster. Where the system has none, nothing changes.
  ::madvise(pages, mapped_size_, MADV_HUGEPAGE);
#endif
}

// A private mapping that may be written to would be locked as a copy of the file.
void MappedFile::lock() const {
  if (data_ == nullptr) return;
  const bool is_locked =
      ::mprotect(data_, mapped_size_, PROT_READ) == 0 && ::mlock(data_, mapped_size_) == 0;
  const int error = errno;
  if (is_locked) return;
  rlimit limit{};
  ::getrlimit(RLIMIT_MEMLOCK, &limit);
  const std::string allowed =
      limit.rlim_cur == RLIM_INFINITY ? "no limit" : concat("at most ", limit.rlim_cur, " bytes");
  throw CapacityError(concat("[file] ", path_.string(), ": cannot be locked in memory (got ",
                             mapped_size_, " bytes, RLIMIT_MEMLOCK allows ", allowed, ": ",
                             std::generic_category().message(error),
                             "); raise it with `ulimit -l`, or leave lock_weights unset"));
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : path_(std::move(other.path_)), data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)), mapped_size_(std::exchange(other.mapped_size_, 0)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  std::swap(mapped_size_, other.mapped_size_);
  return *this;
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) ::munmap(data_, mapped_size_);
}

}  // namespace mtlqwen
