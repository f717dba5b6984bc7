// The store of checkpoints on disk: what it finds, what it forgets, and who may share it.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <fstream>
#include <iomanip>
#include <memory>
#include <numeric>
#include <thread>

#include "base/error.hpp"
#include "cache/disk_space.hpp"
#include "cache/disk_store.hpp"
#include "check.hpp"
#include "files.hpp"
#include "states.hpp"

using namespace mtlqwen;
using namespace mtlqwen::testing;
namespace fs = std::filesystem;

namespace {

constexpr uint64_t kFileBytes = 4 * (16 << 10);  // of up to 682 tokens of small_origin()
constexpr uint64_t kPlenty = 1000 * kFileBytes;

// first, first + 1, ...: prefixes of each other where first is the same.
std::vector<int32_t> tokens(int32_t first, size_t count) {
  std::vector<int32_t> ids(count);
  std::iota(ids.begin(), ids.end(), first);
  return ids;
}

bool put(DiskStore& store, const std::vector<int32_t>& ids,
         const StateOrigin& origin = small_origin()) {
  return store.put(ids, state_of(ids, origin).pieces());
}

// Tokens of what is found, 0 where nothing is; its state must be right.
size_t found(DiskStore& store, const std::vector<int32_t>& ids, uint32_t limit = 1000,
             uint32_t above = 0) {
  const auto file = store.find(ids, limit, above);
  if (!file) return 0;
  check(holds_its_state(*file));
  check(std::ranges::equal(file->header().token_ids,
                           std::span(ids).first(file->header().state_tokens)));
  return file->header().state_tokens;
}

fs::path model_directory(const fs::path& root, uint8_t model = 1) {
  return root / to_hex(small_origin(model).model);
}

std::vector<fs::path> files_in(const fs::path& directory, const std::string& suffix) {
  std::vector<fs::path> files;
  for (const auto& entry : fs::recursive_directory_iterator(directory)) {
    if (entry.path().extension() == suffix) files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  return files;
}

uint64_t bytes_in(const fs::path& directory) {
  uint64_t bytes = 0;
  for (const auto& path : files_in(directory, ".checkpoint")) bytes += fs::file_size(path);
  return bytes;
}

// The only file of so many tokens.
fs::path file_of(const fs::path& root, size_t n_tokens) {
  std::ostringstream name;
  name << std::hex << std::setw(8) << std::setfill('0') << n_tokens;
  for (const fs::path& path : files_in(root, ".checkpoint")) {
    if (path.filename().string().starts_with(name.str())) return path;
  }
  fail("no file of as many tokens", Location::current());
}

// As if it had been used as many minutes ago.
void age(const fs::path& path, int minutes) {
  fs::last_write_time(path, fs::file_time_type::clock::now() - std::chrono::minutes(minutes));
}

void finds_the_deepest_prefix() {
  const TempDirectory root;
  DiskStore store(root.path(), kPlenty, small_origin());
  check_equal(found(store, tokens(0, 50)), 0U);
  check(put(store, tokens(0, 10)));
  check(put(store, tokens(0, 20)));
  check(put(store, tokens(0, 40)));
  check(put(store, tokens(5, 30)));
  for (size_t count : {0, 9, 10, 11, 19, 20, 39, 40, 41, 300}) {
    const size_t want = count < 10 ? 0 : count < 20 ? 10 : count < 40 ? 20 : 40;
    check_equal(found(store, tokens(0, count)), want);
    check_equal(found(store, tokens(0, 300), static_cast<uint32_t>(count)), want);
    check_equal(found(store, tokens(0, 300), 1000, static_cast<uint32_t>(count)),
                count < 40 ? 40U : 0U);
  }
  std::vector<int32_t> branch = tokens(0, 60);
  branch[35] = 1;
  check_equal(found(store, branch), 20U);
  check(store.contains(tokens(5, 30)));
  check(!store.contains(tokens(5, 29)));
}

void keeps_what_it_has() {
  const TempDirectory root;
  check(put(*std::make_unique<DiskStore>(root.path(), kPlenty, small_origin()), tokens(0, 10)));
  DiskStore store(root.path(), kPlenty, small_origin());
  age(file_of(root.path(), 10), 60);
  const auto before = fs::last_write_time(file_of(root.path(), 10));
  check(!put(store, tokens(0, 10)));
  check(fs::last_write_time(file_of(root.path(), 10)) > before);  // it counts as a use
  check_equal(found(store, tokens(0, 10)), 10U);
  check_equal(files_in(root.path(), ".checkpoint").size(), 1U);
}

void keeps_models_and_arithmetics_apart() {
  const TempDirectory root;
  StateOrigin other = small_origin();
  other.arithmetic = 8;
  DiskStore first(root.path(), kPlenty, small_origin());
  DiskStore second(root.path(), kPlenty, other);
  DiskStore third(root.path(), kPlenty, small_origin(2));
  check(put(first, tokens(0, 10)));
  check_equal(found(second, tokens(0, 20)) + found(third, tokens(0, 20)), 0U);
  check(put(second, tokens(0, 10), other));
  check(put(third, tokens(0, 20), small_origin(2)));
  check_equal(found(second, tokens(0, 20)), 10U);
  check_equal(found(third, tokens(0, 20)), 20U);
  check_equal(found(first, tokens(0, 20)), 10U);
}

void evicts_what_was_not_used() {
  const TempDirectory root;
  DiskStore store(root.path(), 3 * kFileBytes, small_origin());
  for (size_t i = 1; i <= 3; ++i) {
    check(put(store, tokens(0, 10 * i)));
    age(file_of(root.path(), 10 * i), 60 - static_cast<int>(i));
  }
  check_equal(found(store, tokens(0, 10)), 10U);  // 20 is the oldest now
  check(put(store, tokens(0, 40)));
  check_equal(bytes_in(root.path()), 3 * kFileBytes);
  check_equal(found(store, tokens(0, 29)), 10U);
  check_equal(found(store, tokens(0, 39)), 30U);
  check(!put(store, tokens(0, 4000)));  // larger than the limit: nothing goes for it
  check_equal(files_in(root.path(), ".checkpoint").size(), 3U);
  DiskStore smaller(root.path(), kFileBytes, small_origin());
  check_equal(files_in(root.path(), ".checkpoint").size(), 1U);
  check(!put(*std::make_unique<DiskStore>(root.path(), 0, small_origin()), tokens(0, 5)));
  check_equal(files_in(root.path(), ".checkpoint").size(), 0U);
}

void one_limit_for_all_models() {
  const TempDirectory root;
  DiskStore first(root.path(), 2 * kFileBytes, small_origin(1));
  DiskStore second(root.path(), 2 * kFileBytes, small_origin(2));
  check(put(first, tokens(0, 10), small_origin(1)));
  age(file_of(root.path(), 10), 9);
  check(put(first, tokens(0, 20), small_origin(1)));
  check(put(second, tokens(0, 30), small_origin(2)));
  check_equal(found(first, tokens(0, 10)), 0U);
  check_equal(bytes_in(root.path()), 2 * kFileBytes);
}

void sees_what_others_do() {
  const TempDirectory root;
  DiskStore ours(root.path(), kPlenty, small_origin());
  DiskStore theirs(root.path(), kPlenty, small_origin());
  for (size_t count = 10; count < 200; count += 10) {  // many changes within a tick of the clock
    check(put(theirs, tokens(0, count)));
    check_equal(found(ours, tokens(0, 500)), count);
  }
  fs::remove(file_of(root.path(), 190));
  check_equal(found(ours, tokens(0, 500)), 180U);
  const auto file = ours.find(tokens(0, 500), 1000);
  fs::remove_all(root.path());
  check_equal(found(ours, tokens(0, 500)), 0U);
  check(holds_its_state(*file));  // still mapped
  check(put(ours, tokens(0, 10)));
  check_equal(found(theirs, tokens(0, 500)), 10U);
}

void compares_tokens() {
  const TempDirectory root;
  DiskStore store(root.path(), kPlenty, small_origin());
  check(put(store, tokens(0, 10)));
  const fs::path name = file_of(root.path(), 10);
  check(put(store, tokens(1, 10)));
  for (const fs::path& path : files_in(root.path(), ".checkpoint")) {
    if (path != name) fs::rename(path, name);  // as if two hashes were the same
  }
  check_equal(found(store, tokens(0, 10)), 0U);
  check_equal(found(store, tokens(1, 10)), 0U);
  check(fs::exists(name));
}

void survives_damage() {
  const TempDirectory root;
  DiskStore store(root.path(), kPlenty, small_origin());
  for (size_t count : {10, 20, 30, 40}) check(put(store, tokens(0, count)));
  fs::resize_file(file_of(root.path(), 40), 100);
  fs::resize_file(file_of(root.path(), 30), 0);
  std::fstream(file_of(root.path(), 20), std::ios::in | std::ios::out).seekp(17'000).put('x');
  const auto file = store.find(tokens(0, 50), 1000);
  check_equal(file->header().state_tokens, 20U);
  check_equal(files_in(root.path(), ".checkpoint").size(), 3U);  // the shortened one is gone
  check_throws<FormatError>([&] { file->verify(); }, "checksum of the bank differs");
  store.discard(file->path());
  check_equal(found(store, tokens(0, 50)), 10U);
  check(put(store, tokens(0, 20)));
  check_equal(found(store, tokens(0, 50)), 20U);
}

// A file that is no checkpoint would be removed, were it opened.
void opens_only_what_matches() {
  const TempDirectory root;
  DiskStore store(root.path(), kPlenty, small_origin());
  check(put(store, tokens(0, 10)));
  std::string name = file_of(root.path(), 10).string();
  for (const char digit : {'a', 'b', 'c'}) {
    std::string other = name;
    other[name.size() - 32] = digit;
    if (other != name) std::ofstream(other) << "no checkpoint";
  }
  const size_t n_files = files_in(root.path(), ".checkpoint").size();
  check(n_files >= 3);
  check_equal(found(store, tokens(0, 500)), 10U);
  check_equal(files_in(root.path(), ".checkpoint").size(), n_files);
}

void leaves_foreign_files_alone() {
  const TempDirectory root;
  fs::create_directories(root.path() / "photos");
  fs::create_directories(model_directory(root.path()));
  const std::vector<fs::path> foreign = {root.path() / "photos" / "a.checkpoint",
                                         root.path() / "photos" / "b.partial",
                                         root.path() / "c.checkpoint", root.path() / "d.partial",
                                         model_directory(root.path()) / "notes.txt"};
  for (const fs::path& path : foreign) std::ofstream(path) << std::string(1000, 'x');
  fs::create_symlink(root.path() / "c.checkpoint", model_directory(root.path()) / "l.checkpoint");
  DiskStore store(root.path(), kFileBytes, small_origin());
  check(put(store, tokens(0, 10)));
  check(put(store, tokens(0, 20)));
  for (const fs::path& path : foreign) check(fs::exists(path));
  check_equal(found(store, tokens(0, 50)), 20U);
}

void counts_and_clears_partial_files() {
  const TempDirectory root;
  DiskStore store(root.path(), 2 * kFileBytes, small_origin());
  const fs::path dead = model_directory(root.path()) / "x.checkpoint.partial";
  std::ofstream(dead) << std::string(3 * kFileBytes, 'x');
  check(put(store, tokens(0, 10)));
  check(!fs::exists(dead));
  auto alive = PartialFile::open(model_directory(root.path()) / "y.checkpoint", 3 * kFileBytes / 2);
  check(!put(store, tokens(0, 20)));  // no room beside it, whatever goes
  alive.reset();
  const auto smaller = PartialFile::open(model_directory(root.path()) / "z.checkpoint", kFileBytes);
  check(put(store, tokens(0, 20)));
  check_equal(files_in(root.path(), ".partial").size(), 1U);
  check_equal(bytes_in(root.path()), kFileBytes);
}

void does_not_wait_for_long() {
  const TempDirectory root;
  DiskStore store(root.path(), kPlenty, small_origin());
  auto lock = DirectoryLock::take(root.path());
  check(lock.has_value());
  check(!put(store, tokens(0, 10)));
  lock.reset();
  check(put(store, tokens(0, 10)));
  const auto busy = PartialFile::open(file_of(root.path(), 10), 5);
  fs::remove(file_of(root.path(), 10));
  check(!put(store, tokens(0, 10)));  // somebody else is at it
}

void names_what_cannot_be_made() {
  const TempDirectory root;
  static_cast<void>(root.write("file", "x"));
  check_throws<FormatError>([&] { DiskStore(root.path() / "file", kPlenty, small_origin()); },
                            "check cache_dir");
}

// Stores of one process and of several are alike: nothing is shared but the directory.
void many_threads_share_a_directory() {
  const TempDirectory root;
  std::vector<std::thread> threads;
  std::atomic<int> n_wrong = 0;
  DiskStore shared(root.path(), 6 * kFileBytes, small_origin());
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      DiskStore own(root.path(), 6 * kFileBytes, small_origin());
      DiskStore& store = t % 2 == 0 ? shared : own;
      for (int i = 0; i < 60; ++i) {
        const auto ids = tokens((i * 7 + t) % 3, 10 + static_cast<size_t>(i) % 9);
        put(store, ids);
        const auto file = store.find(ids, 1000);
        if (file && !holds_its_state(*file)) ++n_wrong;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  check_equal(n_wrong.load(), 0);
  check(bytes_in(root.path()) <= 6 * kFileBytes);
  check(files_in(root.path(), ".partial").empty());
}

}  // namespace

int main() {
  return run({{"finds the deepest prefix", finds_the_deepest_prefix},
              {"keeps what it has", keeps_what_it_has},
              {"keeps models and arithmetics apart", keeps_models_and_arithmetics_apart},
              {"evicts what was not used", evicts_what_was_not_used},
              {"one limit for all models", one_limit_for_all_models},
              {"sees what others do", sees_what_others_do},
              {"compares tokens", compares_tokens},
              {"survives damage", survives_damage},
              {"opens only what matches", opens_only_what_matches},
              {"leaves foreign files alone", leaves_foreign_files_alone},
              {"counts and clears partial files", counts_and_clears_partial_files},
              {"does not wait for long", does_not_wait_for_long},
              {"names what cannot be made", names_what_cannot_be_made},
              {"many threads share a directory", many_threads_share_a_directory}});
}
