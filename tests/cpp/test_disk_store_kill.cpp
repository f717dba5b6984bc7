// Writers that share a directory are killed at random moments; whatever is found there afterwards
// is whole and right. The second argument is the number of rounds.
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <random>
#include <thread>

#include "base/error.hpp"
#include "cache/disk_store.hpp"
#include "check.hpp"
#include "files.hpp"
#include "states.hpp"

using namespace mtlqwen;
using namespace mtlqwen::testing;
namespace fs = std::filesystem;

namespace {

constexpr int kWriters = 2;
constexpr uint64_t kLimit = 2 << 20;  // of files of 144 KiB to 464 KiB
constexpr int kMostMilliseconds = 40;
const StateOrigin kOrigin = {
    .model = {1}, .arithmetic = 7, .n_planes = 4, .token_bytes = 1000, .bank_bytes = 50'000};

// One of 60 token lists, some of them prefixes of others.
std::vector<int32_t> some_tokens(std::mt19937& random) {
  std::vector<int32_t> ids(1 + random() % 20 * 5);
  const auto first = static_cast<int32_t>(random() % 3);
  for (size_t i = 0; i < ids.size(); ++i) ids[i] = first + static_cast<int32_t>(i);
  return ids;
}

fs::path session_path(const fs::path& root, int writer) { return root / concat("session", writer); }

// Runs until it is killed.
[[noreturn]] void write_on(const fs::path& root, uint32_t seed) {
  try {
    std::mt19937 random(seed);
    DiskStore store(root / "cache", kLimit, kOrigin);
    while (true) {
      const std::vector<int32_t> ids = some_tokens(random);
      store.put(ids, state_of(ids, kOrigin).pieces());
      const auto file = store.find(some_tokens(random), 1000);
      if (file && !holds_its_state(*file)) ::_exit(2);
      const CheckpointHeader header{.origin = kOrigin,
                                    .token_ids = ids,
                                    .note = "{}",
                                    .state_tokens = static_cast<uint32_t>(ids.size())};
      const fs::path session = session_path(root, static_cast<int>(seed % kWriters));
      write_checkpoint(session, header, state_of(ids, kOrigin).pieces());
    }
  } catch (const std::exception& error) {
    std::fprintf(stderr, "writer: %s\n", error.what());
    ::_exit(1);
  }
}

void run_and_kill(const fs::path& root, int round, std::mt19937& random) {
  std::vector<pid_t> writers;
  for (int i = 0; i < kWriters; ++i) {
    const pid_t writer = ::fork();
    check(writer >= 0);
    if (writer == 0) write_on(root, static_cast<uint32_t>(kWriters * round + i));
    writers.push_back(writer);
  }
  for (const pid_t writer : writers) {
    const auto wait = std::chrono::microseconds(random() % (1000 * kMostMilliseconds));
    std::this_thread::sleep_for(wait);
    ::kill(writer, SIGKILL);
  }
  for (const pid_t writer : writers) {
    int status = 0;
    check_equal(::waitpid(writer, &status, 0), writer);
    check(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
  }
}

struct Counts {
  int partial = 0;
  int whole = 0;
};

// Every file that has its name must be whole.
Counts check_files(const fs::path& directory, uint64_t max_bytes) {
  Counts counts;
  uint64_t bytes = 0;  // partial files and all
  for (const auto& entry : fs::recursive_directory_iterator(directory)) {
    if (!entry.is_regular_file() || entry.path().filename() == "lock") continue;
    bytes += entry.file_size();
    if (entry.path().extension() == ".partial") {
      ++counts.partial;
    } else {
      check(holds_its_state(CheckpointFile(entry.path(), kOrigin)));
      ++counts.whole;
    }
  }
  check(bytes <= max_bytes);
  return counts;
}

// A fresh store finds what is there, under the tokens that it was written for.
void check_store(const fs::path& root, std::mt19937& random) {
  DiskStore store(root / "cache", kLimit, kOrigin);
  const Counts counts = check_files(root / "cache", kLimit);
  check_equal(counts.partial, 0);
  for (int i = 0; i < 10; ++i) {
    const std::vector<int32_t> ids = some_tokens(random);
    const auto file = store.find(ids, 1000);
    check(file ? holds_its_state(*file) : !store.contains(ids));
  }
}

void survives(int rounds) {
  const TempDirectory root;
  std::mt19937 random(1);
  int n_interrupted = 0;
  int n_whole = 0;
  // A short run may by chance cut no file short; then it goes on.
  for (int round = 0; round < rounds || (n_interrupted == 0 && round < 10 * rounds); ++round) {
    run_and_kill(root.path(), round, random);
    const Counts counts = check_files(root.path() / "cache", kLimit);
    check(counts.partial <= kWriters);
    const Counts all = check_files(root.path(), 2 * kLimit);
    n_interrupted += all.partial > 0;
    n_whole += all.whole;
    for (int i = 0; i < kWriters; ++i) {
      PartialFile::remove_stale(PartialFile::partial_path(session_path(root.path(), i)));
    }
    check_store(root.path(), random);
  }
  std::printf("%d rounds: %d with a file cut short, %d whole files checked\n", rounds,
              n_interrupted, n_whole);
  check(n_interrupted > 0 && n_whole > 0);
}

}  // namespace

int main(int argc, char** argv) {
  const int rounds = argc > 2 ? std::atoi(argv[2]) : 10;
  return run({{"survives kill -9", [rounds] { survives(rounds); }}});
}
