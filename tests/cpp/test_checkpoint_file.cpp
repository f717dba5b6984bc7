// Checkpoint files: what is written comes back, and no damage of a file does.
#include <sys/resource.h>
#include <sys/stat.h>

#include <algorithm>
#include <csignal>
#include <fstream>
#include <functional>
#include <iterator>
#include <numeric>
#include <stdexcept>

#include "base/error.hpp"
#include "check.hpp"
#include "files.hpp"
#include "io/checksum.hpp"
#include "states.hpp"
#include "watch_new.hpp"

using namespace mtlqwen;
using namespace mtlqwen::testing;
namespace fs = std::filesystem;

namespace {

constexpr uint64_t kModest = 1U << 16;
constexpr size_t kPage = 16 << 10;
const std::vector<int32_t> kTokens = {5, 0, 248'319, 7, 7};
constexpr std::string_view kNote = "{\"turns\":\"\xC3\xA9\"}";

CheckpointHeader small_header(uint32_t state_tokens) {
  return {
      .origin = small_origin(), .token_ids = kTokens, .note = kNote, .state_tokens = state_tokens};
}

// The state stands after 3 of 5 tokens: head, bank and two planes of 16 KiB each.
fs::path write_small(const fs::path& path) {
  const State state = state_of(std::span(kTokens).first(3), small_origin());
  write_checkpoint(path, small_header(3), state.pieces());
  return path;
}

Bytes read_all(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  return Bytes().raw(text);
}

void open_and_verify(const fs::path& path) { CheckpointFile(path, small_origin()).verify(); }

void sums_depend_on_every_bit() {
  std::vector<uint8_t> bytes(200);
  std::iota(bytes.begin(), bytes.end(), uint8_t{0});
  const uint64_t whole = checksum(bytes);
  for (size_t bit = 0; bit < 8 * bytes.size(); ++bit) {
    bytes[bit / 8] ^= static_cast<uint8_t>(1U << (bit % 8));
    check(checksum(bytes) != whole);
    bytes[bit / 8] ^= static_cast<uint8_t>(1U << (bit % 8));
  }
  std::vector<uint64_t> seen;
  for (size_t count = 0; count < 200; ++count) {
    seen.push_back(checksum(std::vector<uint8_t>(count)));  // zeros: only the length differs
  }
  seen.push_back(checksum({}, 1));
  std::sort(seen.begin(), seen.end());
  check(std::adjacent_find(seen.begin(), seen.end()) == seen.end());
}

// Words that change places or lanes, and damage of several words.
void sums_see_moved_words() {
  std::vector<uint8_t> bytes(4096);
  uint64_t word = 1;
  for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(word = mix(word, 3));
  const uint64_t whole = checksum(bytes);
  for (size_t i = 0; i + 8 < bytes.size(); i += 8) {
    std::vector<uint8_t> moved = bytes;
    std::swap_ranges(moved.begin() + static_cast<long>(i), moved.begin() + static_cast<long>(i) + 8,
                     moved.end() - 8);
    check(checksum(moved) != whole);
    std::fill(moved.begin(), moved.begin() + static_cast<long>(i) + 8, uint8_t{0});
    check(checksum(moved) != whole);
  }
}

void sums_do_not_depend_on_cuts() {
  std::vector<uint8_t> bytes(300, 9);
  bytes[77] = 1;
  for (size_t first = 0; first <= 130; ++first) {
    for (const size_t second : {first, first + 1, first + 63, first + 64, first + 170}) {
      Checksum sum;
      sum.add(std::span(bytes).first(first));
      sum.add(std::span(bytes).subspan(first, second - first));
      sum.add(std::span(bytes).subspan(second));
      check_equal(sum.value(), checksum(bytes));
    }
  }
}

// Files outlive programs: these values may only change together with the version.
void the_format_stays() {
  std::vector<uint8_t> bytes(100);
  std::iota(bytes.begin(), bytes.end(), uint8_t{0});
  check_equal(checksum({}), 17'101'968'754'218'865'516ULL);
  check_equal(checksum(bytes), 17207226562868094014ULL);
  check_equal(checksum(bytes, 1), 7241962728704162652ULL);
  const TempDirectory directory;
  const Bytes file = read_all(write_small(directory.path() / "a"));
  check_equal(checksum(file.data()), 6120690996110503484ULL);
}

void reads_what_was_written() {
  const TempDirectory directory;
  const CheckpointFile file(write_small(directory.path() / "a"), small_origin());
  const CheckpointHeader& header = file.header();
  check(std::ranges::equal(header.token_ids, kTokens));
  check_equal(header.note, kNote);
  check_equal(header.state_tokens, 3U);
  check_equal(header.origin.arithmetic, 7U);
  check(holds_its_state(file));
  check_throws<std::logic_error>([&] { return file.plane(2); }, "no section");
  check_equal(fs::file_size(directory.path() / "a"), checkpoint_bytes(small_header(3)));
  check_equal(fs::file_size(directory.path() / "a"), 4 * kPage);
  struct stat status{};
  check_equal(::stat((directory.path() / "a").c_str(), &status), 0);
  check_equal(status.st_mode & 0777U, 0600U);
}

void reads_tokens_without_a_state() {
  const TempDirectory directory;
  const fs::path path = directory.path() / "a";
  write_checkpoint(path, small_header(0), {});
  const CheckpointFile file(path, small_origin());
  file.verify();
  check(std::ranges::equal(file.header().token_ids, kTokens));
  check_equal(fs::file_size(path), kPage);
  check_throws<std::logic_error>([&] { return file.bank(); }, "no section");
  write_checkpoint(path, {.origin = small_origin(), .token_ids = {}, .note = {}}, {});
  check(CheckpointFile(path, small_origin()).header().token_ids.empty());
}

void reads_models_of_one_kind_of_layer() {
  const TempDirectory directory;
  for (const StateOrigin& origin :
       {StateOrigin{.n_planes = 0, .token_bytes = 0, .bank_bytes = 40'000},
        StateOrigin{.n_planes = 3, .token_bytes = 20'000, .bank_bytes = 0}}) {
    const State state = state_of(kTokens, origin);
    const fs::path path = directory.path() / "a";
    write_checkpoint(path, {.origin = origin, .token_ids = kTokens, .note = {}, .state_tokens = 5},
                     state.pieces());
    check(holds_its_state(CheckpointFile(path, origin)));
  }
}

void refuses_what_does_not_agree() {
  const TempDirectory directory;
  const fs::path path = directory.path() / "a";
  const State state = state_of(std::span(kTokens).first(3), small_origin());
  const auto refused = [&](const CheckpointHeader& header, const StatePieces& pieces) {
    check_throws<std::logic_error>([&] { write_checkpoint(path, header, pieces); }, "agree");
  };
  refused(small_header(2), state.pieces());
  refused(small_header(0), state.pieces());
  refused(small_header(3), {});
  CheckpointHeader header = small_header(3);
  header.note = "\xFF";
  refused(header, state.pieces());
  header = small_header(3);
  header.token_ids = header.token_ids.first(2);
  refused(header, state.pieces());
  check(fs::is_empty(directory.path()));
}

void refuses_another_model() {
  const TempDirectory directory;
  const fs::path path = write_small(directory.path() / "a");
  check_throws<ModelError>([&] { return CheckpointFile(path, small_origin(2)); },
                           "made with another model (got 01010101010101010101010101010101, want");
  StateOrigin other = small_origin();
  other.arithmetic = 8;  // may be read
  CheckpointFile(path, other).verify();
  for (const auto& change :
       {+[](StateOrigin& o) { o.n_planes = 3; }, +[](StateOrigin& o) { o.token_bytes = 25; },
        +[](StateOrigin& o) { o.bank_bytes = 1001; }}) {
    other = small_origin();
    change(other);
    check_throws<FormatError>([&] { return CheckpointFile(path, other); }, "another shape");
  }
}

void refuses_every_truncation() {
  const TempDirectory directory;
  const fs::path path = write_small(directory.path() / "a");
  largest_allocation = 0;
  for (uint64_t count = fs::file_size(path); count-- > 0;) {
    fs::resize_file(path, count);
    check_throws<FormatError>([&] { open_and_verify(path); }, path.string());
  }
  check(largest_allocation < kModest);
  write_small(path);
  fs::resize_file(path, 5 * kPage);
  check_throws<FormatError>([&] { open_and_verify(path); }, "size is wrong");
}

// Padding is summed too: there is no byte that may change unseen.
void finds_every_changed_byte() {
  const TempDirectory directory;
  const fs::path path = write_small(directory.path() / "a");
  const Bytes whole = read_all(path);
  std::fstream file(path, std::ios::binary | std::ios::in | std::ios::out);
  const auto write = [&](size_t place, int byte) {
    file.seekp(static_cast<std::streamoff>(place));
    file.put(static_cast<char>(byte));
    file.flush();
  };
  largest_allocation = 0;
  for (size_t i = 0; i < whole.size(); ++i) {
    const bool is_head = i < 256;
    for (unsigned bit = is_head ? 0 : i % 8; bit < (is_head ? 8 : i % 8 + 1); ++bit) {
      write(i, whole.data()[i] ^ (1 << bit));
      check_throws<FormatError>([&] { open_and_verify(path); }, "[checkpoint] ");
    }
    write(i, whole.data()[i]);
  }
  check(largest_allocation < kModest);
  open_and_verify(path);
}

void names_the_damaged_section() {
  const TempDirectory directory;
  const fs::path path = directory.path() / "a";
  const auto damaged = [&](size_t place) {
    write_small(path);
    Bytes bytes = read_all(path);
    bytes[place] ^= 1;
    static_cast<void>(directory.write("a", bytes));
    return CheckpointFile(path, small_origin());
  };
  CheckpointFile file = damaged(kPage + 10);
  check_throws<FormatError>([&] { return file.bank(); }, "checksum of the bank differs");
  static_cast<void>(file.plane(1));  // each section stands alone
  file = damaged(3 * kPage + 10);
  check_throws<FormatError>([&] { return file.plane(1); }, "a: checksum of plane 1 differs");
  check_throws<FormatError>([&] { file.verify(); }, "; delete the file");
  check_throws<FormatError>([&] { return damaged(kPage - 1); }, "checksum of the head differs");
}

// The sum of the head was put right, so only the reader's own checks are left.
void refuses_forged_heads() {
  const TempDirectory directory;
  const fs::path path = directory.path() / "a";
  write_small(path);
  const Bytes whole = read_all(path);
  const auto refused = [&](const std::function<void(uint8_t*)>& change, std::string_view part) {
    Bytes bytes = whole;
    change(&bytes[0]);
    std::fill_n(&bytes[16], 8, uint8_t{0});
    const uint64_t sum = checksum(std::span(bytes.data()).first(kPage));
    std::memcpy(&bytes[16], &sum, sizeof(sum));
    static_cast<void>(directory.write("a", bytes));
    largest_allocation = 0;
    check_throws<FormatError>([&] { open_and_verify(path); }, part);
    check(largest_allocation < kModest);
  };
  const auto put = [](size_t place, auto value) {
    return [=](uint8_t* bytes) { std::memcpy(bytes + place, &value, sizeof(value)); };
  };
  const size_t tokens = 80 + 3 * sizeof(uint64_t);
  refused(put(0, uint8_t{'M'}), "is no checkpoint of mtlqwen; check the path");
  refused(put(8, 2U), "version does not run (got 2, want 1)");
  for (const uint32_t n_planes : {0U, 1U, 3U, 4096U, ~0U}) refused(put(12, n_planes), "size is");
  for (const uint64_t huge : {~0ULL, 1ULL << 63, 1ULL << 62, (1ULL << 63) / 3}) {
    refused(put(48, huge), "size is wrong");  // bytes of a token
    refused(put(56, huge), "size is wrong");  // of the bank
    refused(put(72, huge), "size is wrong");  // of the note
  }
  for (const uint32_t n_tokens : {~0U, 1U << 31, 1U << 14}) refused(put(64, n_tokens), "size is");
  refused(put(68, ~0U), "size is wrong");
  refused(put(68, 6U), "state goes beyond the tokens (got 6 of 5)");
  refused(put(68, 0U), "size is wrong");
  refused(put(tokens + 4, -1), "a token id is negative");
  refused(put(tokens + kTokens.size() * 4, uint8_t{0xFF}), "note is not UTF-8");
  refused(put(72, kNote.size() - 3), "note is not UTF-8");
}

void refuses_what_is_no_file() {
  const TempDirectory directory;
  check_throws<FormatError>([&] { open_and_verify(directory.path() / "missing"); },
                            "cannot be opened (got No such file");
  check_throws<FormatError>([&] { open_and_verify(directory.path()); }, "got a directory");
  check_throws<FormatError>([&] { open_and_verify(directory.write("text", "once upon")); },
                            "is no checkpoint of mtlqwen; check the path");
  check_throws<FormatError>([&] { write_small(directory.path() / "no" / "a"); },
                            "cannot be made (got No such file");
  fs::create_directory(directory.path() / "a");
  check_throws<FormatError>([&] { write_small(directory.path() / "a"); }, "no regular file");
  const fs::path fifo = directory.path() / "fifo";
  check_equal(::mkfifo(fifo.c_str(), 0600), 0);
  check_throws<FormatError>([&] { write_small(fifo); }, "no regular file");
  check(fs::is_fifo(fifo));
  fs::create_symlink(directory.path() / "text", directory.path() / "b.partial");
  check_throws<FormatError>([&] { write_small(directory.path() / "b"); }, "cannot be made");
  check_equal(fs::file_size(directory.path() / "text"), 9U);
}

void replaces_a_file_at_once() {
  const TempDirectory directory;
  const fs::path path = directory.path() / "a";
  write_checkpoint(path, small_header(0), {});
  const CheckpointFile old(path, small_origin());
  auto partial = PartialFile::open(path, 4 * kPage);
  check(partial.has_value());
  check_equal(fs::file_size(PartialFile::partial_path(path)), 4 * kPage);
  check_equal(CheckpointFile(path, small_origin()).header().state_tokens, 0U);
  check(!PartialFile::open(path, 1));
  check(!PartialFile::remove_stale(PartialFile::partial_path(path)));
  check_throws<CapacityError>([&] { write_small(path); }, "is being written by somebody else");
  partial.reset();
  check(!fs::exists(PartialFile::partial_path(path)));
  write_small(path);
  check_equal(CheckpointFile(path, small_origin()).header().state_tokens, 3U);
  old.verify();  // still mapped
}

void takes_over_what_a_dead_writer_left() {
  const TempDirectory directory;
  const fs::path path = directory.path() / "a";
  static_cast<void>(directory.write("a.partial", std::string(6 * kPage, 'x')));
  write_small(path);
  open_and_verify(path);
  check(!fs::exists(directory.path() / "a.partial"));
  static_cast<void>(directory.write("a.partial", "x"));
  check(PartialFile::remove_stale(directory.path() / "a.partial"));
  check(!PartialFile::remove_stale(directory.path() / "a.partial"));
}

void says_that_there_is_no_room() {
  const TempDirectory directory;
  rlimit limit{};
  check_equal(::getrlimit(RLIMIT_FSIZE, &limit), 0);
  const rlimit low{.rlim_cur = kPage, .rlim_max = limit.rlim_max};
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  check_equal(::setrlimit(RLIMIT_FSIZE, &low), 0);
  check_throws<CapacityError>([&] { write_small(directory.path() / "a"); }, "; make room");
  ::setrlimit(RLIMIT_FSIZE, &limit);
  std::signal(SIGXFSZ, handler);
  check_throws<CapacityError>([&] { return PartialFile::open(directory.path() / "a", 1ULL << 63); },
                              "too large");
  check(fs::is_empty(directory.path()));
}

}  // namespace

int main() {
  return run({{"sums depend on every bit", sums_depend_on_every_bit},
              {"sums see moved words", sums_see_moved_words},
              {"sums do not depend on cuts", sums_do_not_depend_on_cuts},
              {"the format stays", the_format_stays},
              {"reads what was written", reads_what_was_written},
              {"reads tokens without a state", reads_tokens_without_a_state},
              {"reads models of one kind of layer", reads_models_of_one_kind_of_layer},
              {"refuses what does not agree", refuses_what_does_not_agree},
              {"refuses another model", refuses_another_model},
              {"refuses every truncation", refuses_every_truncation},
              {"finds every changed byte", finds_every_changed_byte},
              {"names the damaged section", names_the_damaged_section},
              {"refuses forged heads", refuses_forged_heads},
              {"refuses what is no file", refuses_what_is_no_file},
              {"replaces a file at once", replaces_a_file_at_once},
              {"takes over what a dead writer left", takes_over_what_a_dead_writer_left},
              {"says that there is no room", says_that_there_is_no_room}});
}
