// A file that others see whole or not at all, whenever its writer is killed or the power fails.
#pragma once
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>

#include "io/descriptor.hpp"

namespace mtlqwen {

// Grows as `target`.partial, locked with flock, which a writer's death releases: a partial file
// that can be locked has no writer. publish() gives it the target's name; without it the file is
// removed. Only its owner can read the file. Errors: CapacityError where the disk is full,
// FormatError otherwise.
class PartialFile {
 public:
  // None: another writer, of this process or another, is at work on the target. What a killed one
  // left is written over. The file has all of its bytes at once, as a hole.
  [[nodiscard]] static std::optional<PartialFile> open(const std::filesystem::path& target,
                                                       uint64_t bytes);
  PartialFile(PartialFile&&) noexcept = default;
  PartialFile& operator=(PartialFile&&) = delete;
  ~PartialFile();

  [[nodiscard]] const std::filesystem::path& target() const { return target_; }
  void write(std::span<const uint8_t> bytes, uint64_t offset);

  // Bytes to the disk, then the name, then the directory to the disk. Replaces an older target.
  void publish();

  [[nodiscard]] static std::filesystem::path partial_path(const std::filesystem::path& target);
  // Removes a partial file without a writer; false where there is one, or nothing to remove.
  static bool remove_stale(const std::filesystem::path& partial);

 private:
  PartialFile(std::filesystem::path target, Descriptor file);

  std::filesystem::path target_;
  Descriptor file_;  // closed: published
};

// Names and removals of the directory's files reach the disk.
void sync_directory(const std::filesystem::path& directory);

}  // namespace mtlqwen
