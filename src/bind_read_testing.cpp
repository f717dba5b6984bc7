// _core._testing.read_seconds: what the machine reads from memory, the ceiling that bench refers to.
#include <nanobind/stl/vector.h>
#include <sys/mman.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <new>
#include <stdexcept>
#include <thread>
#include <vector>

#include "bind.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace mtlqwen {
namespace {

using Pair = uint64_t __attribute__((vector_size(16)));  // what every build has vectors for
struct Line {                                            // of a cache
  Pair pairs[4];
};
constexpr uint64_t kAheadLines = 16;
constexpr uint64_t kHugeBytes = 2 << 20;

struct Freed {
  void operator()(Line* lines) const { ::operator delete(lines, std::align_val_t{kHugeBytes}); }
};

// Memory in huge pages where there are any, which is read a little faster; each line sums up to 1.
std::unique_ptr<Line, Freed> new_lines(uint64_t n) {
  const uint64_t bytes = n * sizeof(Line);
  auto* lines = static_cast<Line*>(::operator new(bytes, std::align_val_t{kHugeBytes}));
#ifdef MADV_HUGEPAGE
  ::madvise(lines, bytes, MADV_HUGEPAGE);
#endif
  std::fill_n(lines, n, Line{{Pair{1}}});
  return std::unique_ptr<Line, Freed>(lines);
}

// Sums that do not wait for each other, so that the loop waits for memory alone.
uint64_t read_lines(const Line* lines, uint64_t n) {
  Pair a = {};
  Pair b = {};
  Pair c = {};
  Pair d = {};
  for (const Line* line = lines; line != lines + n; ++line) {
    __builtin_prefetch(line + kAheadLines, 0, 0);  // to be read, once
    a += line->pairs[0];
    b += line->pairs[1];
    c += line->pairs[2];
    d += line->pairs[3];
  }
  const Pair sum = a + b + c + d;
  return sum[0] + sum[1];
}

// Seconds that `threads` threads take to read a buffer once, round by round.
std::vector<double> read_seconds(uint64_t bytes, unsigned threads, unsigned rounds) {
  using Clock = std::chrono::steady_clock;
  const uint64_t share = bytes / sizeof(Line) / threads;
  const auto lines = new_lines(share * threads + kAheadLines);
  std::vector<double> seconds;
  for (unsigned round = 0; round < rounds; ++round) {
    const Clock::time_point begin = Clock::now();
    std::vector<uint64_t> sums(threads);
    std::vector<std::thread> others;
    for (unsigned t = 1; t < threads; ++t) {
      others.emplace_back([&, t] { sums[t] = read_lines(lines.get() + t * share, share); });
    }
    sums[0] = read_lines(lines.get(), share);
    for (std::thread& thread : others) thread.join();
    seconds.push_back(std::chrono::duration<double>(Clock::now() - begin).count());
    for (const uint64_t sum : sums) {
      if (sum != share) throw std::logic_error("a thread has not read its share");
    }
  }
  return seconds;
}

}  // namespace

void init_read_testing(nb::module_& testing) {
  testing.def("read_seconds", &read_seconds, nb::call_guard<nb::gil_scoped_release>(), "bytes"_a,
              "threads"_a, "rounds"_a);
}

}  // namespace mtlqwen
