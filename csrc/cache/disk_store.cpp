#include "cache/disk_store.hpp"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <string_view>
#include <system_error>
#include <utility>

#include "base/error.hpp"
#include "cache/disk_space.hpp"
#include "io/checksum.hpp"

namespace mtlqwen {
namespace {

namespace fs = std::filesystem;

// Two changes of a directory within it may give it the same time: file systems take the time of the
// kernel's last tick, 10 ms apart at most.
constexpr std::chrono::milliseconds kTick{50};

uint64_t chained(uint64_t hash, int32_t token_id) {
  return mix(hash, static_cast<uint32_t>(token_id));
}

uint64_t hash_of(std::span<const int32_t> token_ids) {
  uint64_t hash = 0;
  for (const int32_t id : token_ids) hash = chained(hash, id);
  return hash;
}

// 16 digits.
std::string hex(uint64_t value) {
  Fingerprint bytes{};
  for (size_t i = 0; i < sizeof(value); ++i) bytes[i] = static_cast<uint8_t>(value >> (56 - 8 * i));
  return to_hex(bytes).substr(0, 16);
}

std::optional<uint64_t> parse_hex(std::string_view text) {
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, 16);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

// False where there is no such file.
bool touch(const fs::path& path) { return ::utimensat(AT_FDCWD, path.c_str(), nullptr, 0) == 0; }

}  // namespace

DiskStore::DiskStore(fs::path directory, uint64_t max_bytes, const StateOrigin& origin)
    : root_(std::move(directory)), directory_(root_ / to_hex(origin.model)), max_bytes_(max_bytes),
      origin_(origin), name_end_(concat('-', hex(origin.arithmetic), kCheckpointSuffix)) {
  make_directory();
  if (const auto lock = DirectoryLock::take(root_)) evict_to(root_, max_bytes_);
}

void DiskStore::make_directory() const {
  std::error_code error;
  if (fs::create_directories(directory_, error)) sync_directory(root_);
  if (error) {
    throw FormatError(concat("[cache] ", directory_.string(), ": cannot be made (got ",
                             error.message(), "); check cache_dir and its rights"));
  }
}

bool DiskStore::put(std::span<const int32_t> token_ids, const StatePieces& pieces) {
  const CheckpointHeader header{.origin = origin_,
                                .token_ids = token_ids,
                                .note = {},
                                .state_tokens = static_cast<uint32_t>(token_ids.size())};
  const uint64_t bytes = checkpoint_bytes(header);
  const fs::path path = path_of({header.state_tokens, hash_of(token_ids)});
  if (bytes > max_bytes_ || touch(path)) return false;
  std::optional<PartialFile> file = start(path, bytes);
  if (!file) return false;
  write_checkpoint(std::move(*file), header, pieces);
  return true;
}

// Once it has its bytes as a hole, everybody's evictions count them.
std::optional<PartialFile> DiskStore::start(const fs::path& path, uint64_t bytes) const {
  make_directory();  // somebody may have emptied the root
  const auto lock = DirectoryLock::take(root_);
  if (!lock || !evict_to(root_, max_bytes_ - bytes)) return std::nullopt;
  return PartialFile::open(path, bytes);
}

bool DiskStore::contains(std::span<const int32_t> token_ids) const {
  std::error_code error;
  return fs::exists(path_of({static_cast<uint32_t>(token_ids.size()), hash_of(token_ids)}), error);
}

std::optional<CheckpointFile> DiskStore::find(std::span<const int32_t> token_ids, uint32_t limit,
                                              uint32_t above) {
  const std::vector<Key> keys =
      matches(token_ids.first(std::min<size_t>(limit, token_ids.size())), above);
  for (auto key = keys.rbegin(); key != keys.rend(); ++key) {
    const fs::path path = path_of(*key);
    std::optional<CheckpointFile> file = open(path);
    if (!file) continue;
    const CheckpointHeader& header = file->header();
    const bool is_whole = header.state_tokens == key->n_tokens;
    if (!is_whole || !std::ranges::equal(header.token_ids, token_ids.first(key->n_tokens)))
      continue;
    touch(path);
    return file;
  }
  return std::nullopt;
}

// A file that cannot be opened may be a good one (no descriptors left, no rights); one that is open
// and damaged is not.
std::optional<CheckpointFile> DiskStore::open(const fs::path& path) const {
  MappedFile mapped;
  try {
    mapped = MappedFile(path);
  } catch (const FormatError&) {
    return std::nullopt;
  }
  try {
    return CheckpointFile(std::move(mapped), origin_);
  } catch (const Error&) {
    discard(path);
    return std::nullopt;
  }
}

void DiskStore::discard(const fs::path& file) const {
  std::error_code ignored;
  fs::remove(file, ignored);
}

// Length, hash and arithmetic, in hexadecimal digits: "00000200-0123456789abcdef-...".
fs::path DiskStore::path_of(const Key& key) const {
  return directory_ / concat(hex(key.n_tokens).substr(8), '-', hex(key.hash), name_end_);
}

std::optional<DiskStore::Key> DiskStore::key_of(std::string_view name) const {
  if (name.size() != 25 + name_end_.size() || !name.ends_with(name_end_)) return std::nullopt;
  const auto n_tokens = parse_hex(name.substr(0, 8));
  const auto hash = parse_hex(name.substr(9, 16));
  if (!n_tokens || !hash) return std::nullopt;
  return Key{static_cast<uint32_t>(*n_tokens), *hash};
}

// Ascending: the files whose names say that they stand after a prefix longer than `above`.
std::vector<DiskStore::Key> DiskStore::matches(std::span<const int32_t> token_ids, uint32_t above) {
  const std::scoped_lock lock(mutex_);
  refresh_locked();
  std::vector<Key> keys;
  uint64_t hash = 0;
  uint32_t hashed = 0;
  for (const auto& [n_tokens, hashes] : index_) {
    if (n_tokens > token_ids.size()) break;
    for (; hashed < n_tokens; ++hashed) hash = chained(hash, token_ids[hashed]);
    if (n_tokens > above && hashes.contains(hash)) keys.push_back({n_tokens, hash});
  }
  return keys;
}

// The time is read first: what changes while names are read makes another one.
void DiskStore::refresh_locked() {
  std::error_code error;
  const fs::file_time_type changed = fs::last_write_time(directory_, error);
  if (!error && settled_ && changed == indexed_) return;
  index_.clear();
  indexed_ = changed;
  settled_ = !error && fs::file_time_type::clock::now() - changed > kTick;
  fs::directory_iterator entry(directory_, error);
  for (const fs::directory_iterator end; !error && entry != end; entry.increment(error)) {
    const auto key = key_of(entry->path().filename().native());
    if (key) index_[key->n_tokens].insert(key->hash);
  }
}

}  // namespace mtlqwen
