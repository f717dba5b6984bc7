// A whole file mapped for reading, page by page, by the kernel of the operating system.
#pragma once
#include <cstdint>
#include <filesystem>
#include <span>

namespace mtlqwen {

// Of the operating system's memory: 4 KiB or 16 KiB, mostly.
[[nodiscard]] uint64_t os_page_bytes();

// Owns the mapping; movable. Pages are private and copy-on-write, as Metal wants them for a no-copy
// buffer; the file is never written. The tail of the last page reads as zero.
class MappedFile {
 public:
  MappedFile() = default;
  // Throws FormatError: missing, a directory, empty, unreadable.
  explicit MappedFile(const std::filesystem::path& path);
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  ~MappedFile();

  // Reads all of it and keeps it in memory while mapped; its pages can only be read from then on.
  // Throws CapacityError where the system refuses.
  void lock() const;

  [[nodiscard]] std::span<const uint8_t> bytes() const { return {data_, size_}; }
  [[nodiscard]] uint8_t* pages() const { return data_; }
  [[nodiscard]] uint64_t page_bytes() const {
    return mapped_size_;
  }  // size rounded up to whole pages
  [[nodiscard]] const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
  uint8_t* data_ = nullptr;
  uint64_t size_ = 0;
  uint64_t mapped_size_ = 0;
};

}  // namespace mtlqwen
