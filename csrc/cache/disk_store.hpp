// Checkpoints on disk, found by the tokens that they stand after, across restarts and processes.
#pragma once
#include <cstdint>
#include <filesystem>
#include <map>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "io/checkpoint_file.hpp"

namespace mtlqwen {

// The directory holds one subdirectory for each model, and in it files named by length and hash of
// their tokens and by arithmetic. Any number of processes may share it. Invariant: what our files
// take together, partial ones included, is at most max_bytes; the files that were used least
// recently go first. Thread-safe. A file that vanishes, or cannot be read, is a miss.
class DiskStore {
 public:
  // Makes the directory, evicts down to max_bytes, and clears what killed writers left. Throws
  // FormatError where the directory cannot be made.
  DiskStore(std::filesystem::path directory, uint64_t max_bytes, const StateOrigin& origin);

  // Writes the state after all of the tokens, durably. False where it is there already (which
  // counts as a use), larger than max_bytes, or where another writer is at work on it or keeps the
  // lock. Throws CapacityError where the disk is full, FormatError where it cannot be written.
  bool put(std::span<const int32_t> token_ids, const StatePieces& pieces);

  // By name alone.
  [[nodiscard]] bool contains(std::span<const int32_t> token_ids) const;

  // The deepest file of more than `above` and at most `limit` tokens that are a prefix of
  // token_ids; that counts as a use. Its head and its tokens have been checked, its state has not.
  [[nodiscard]] std::optional<CheckpointFile> find(std::span<const int32_t> token_ids,
                                                   uint32_t limit, uint32_t above = 0);

  // Removes a file whose state turned out to be damaged.
  void discard(const std::filesystem::path& file) const;

 private:
  struct Key {
    uint32_t n_tokens;
    uint64_t hash;
  };

  void make_directory() const;
  [[nodiscard]] std::optional<PartialFile> start(const std::filesystem::path& path,
                                                 uint64_t bytes) const;
  [[nodiscard]] std::optional<CheckpointFile> open(const std::filesystem::path& path) const;
  [[nodiscard]] std::filesystem::path path_of(const Key& key) const;
  [[nodiscard]] std::optional<Key> key_of(std::string_view name) const;
  [[nodiscard]] std::vector<Key> matches(std::span<const int32_t> token_ids, uint32_t above);
  void refresh_locked();

  std::filesystem::path root_;
  std::filesystem::path directory_;  // of our model
  uint64_t max_bytes_;
  StateOrigin origin_;
  std::string name_end_;  // of files with our arithmetic

  std::mutex mutex_;  // guards what follows; never held while files are read or written
  std::map<uint32_t, std::unordered_set<uint64_t>> index_;  // n_tokens -> hashes
  std::filesystem::file_time_type indexed_;                 // the directory's time it stands for
  bool settled_ = false;                                    // a later change has another time
};

}  // namespace mtlqwen
