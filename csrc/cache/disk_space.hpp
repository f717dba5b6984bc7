// Who may change what lies in a directory of checkpoints, and how it is kept within its limit.
#pragma once
#include <cstdint>
#include <filesystem>
#include <optional>
#include <utility>

#include "io/descriptor.hpp"

namespace mtlqwen {

inline constexpr char kCheckpointSuffix[] = ".checkpoint";

// Held while files are evicted and partial ones are made, by one thread of all processes.
class DirectoryLock {
 public:
  // None where somebody holds it for longer than that takes, stopped perhaps: nobody waits long.
  // Throws FormatError where the directory cannot be written.
  [[nodiscard]] static std::optional<DirectoryLock> take(const std::filesystem::path& directory);

 private:
  explicit DirectoryLock(Descriptor file) : file_(std::move(file)) {}

  Descriptor file_;
};

// Removes what killed writers left in the subdirectories, then the files that were used least
// recently, until all files, partial ones included, take at most max_bytes. False where others'
// partial files alone take more. Under the lock. Foreign files are left alone and not counted.
bool evict_to(const std::filesystem::path& directory, uint64_t max_bytes);

}  // namespace mtlqwen
