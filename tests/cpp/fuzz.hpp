// Mutates inputs of readers from seeds, in the same order each time, and keeps those that a reader
// answered as it had answered none before.
#pragma once
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <random>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.hpp"
#include "check.hpp"

namespace mtlqwen::testing {

// Bytes that are live, and the most of them since the last reset; fuzz_readers.cpp counts.
inline uint64_t live_bytes = 0;
inline uint64_t peak_bytes = 0;

class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}
  // 0 to limit - 1; 0 for 0.
  uint64_t below(uint64_t limit) { return limit == 0 ? 0 : state_() % limit; }
  bool chance(uint64_t one_in) { return below(one_in) == 0; }
  template <class T, size_t kCount>
  const T& of(const std::array<T, kCount>& choices) {
    return choices[below(kCount)];
  }

 private:
  std::mt19937_64 state_;
};

// A number at which readers err: near 0, near a power of two, near the length of the input.
inline uint64_t telling_number(Random& random, uint64_t length) {
  const uint64_t near = random.below(5) - 2;
  switch (random.below(5)) {
  case 0:
    return near;
  case 1:
    return (1ULL << random.below(random.chance(2) ? 24 : 64)) + near;
  case 2:
    return length + near;
  case 3:
    return random.below(256);
  default:
    return ~0ULL / (1 + random.below(64)) + near;
  }
}

inline void overwrite(std::string& data, size_t place, uint64_t value, size_t width) {
  if (place + width <= data.size()) std::memcpy(data.data() + place, &value, width);
}

// One change of bytes, blind to what they mean but for lengths, which it looks for.
inline void mutate_bytes(std::string& data, Random& random, const std::string& other) {
  static constexpr std::array<size_t, 4> kWidths = {1, 2, 4, 8};
  const size_t place = random.below(data.size());
  const size_t count = 1 + random.below(random.chance(4) ? data.size() : 16);
  switch (random.below(9)) {
  case 0:
    if (!data.empty()) data[place] = static_cast<char>(data[place] ^ (1 << random.below(8)));
    break;
  case 1:
    overwrite(data, place, random.below(256), 1);
    break;
  case 2:
    overwrite(data, place, telling_number(random, data.size()), random.of(kWidths));
    break;
  case 3: {  // the next thing that may be a length of something here
    uint64_t value = 0;
    for (size_t i = place; i + sizeof(value) <= data.size(); ++i) {
      std::memcpy(&value, data.data() + i, sizeof(value));
      if (value == 0 || value > data.size()) continue;
      overwrite(
          data, i,
          random.chance(2) ? value + random.below(3) - 1 : telling_number(random, data.size()), 8);
      break;
    }
    break;
  }
  case 4:
    data.erase(place, count);
    break;
  case 5:
    data.insert(place, std::string(data.substr(random.below(data.size()), count)));
    break;
  case 6:
    data.resize(place);
    break;
  case 7: {
    const size_t from = random.below(other.size());
    data = data.substr(0, place) + other.substr(std::min(from, other.size()));
    break;
  }
  default:
    data.insert(place, std::string(count, static_cast<char>(random.below(256))));
  }
}

// What is fuzzed: `read` gets an input and throws MtlqwenError where it refuses it.
struct Target {
  std::string name;
  std::function<std::string(Random&)> seed;  // a valid input
  std::function<void(std::string&, Random&, const std::string& other)> mutate;
  std::function<void(const std::string&)> read;
  uint64_t bytes_per_byte;  // that reading may take
};

inline constexpr uint64_t kFreeBytes = 64 << 10;  // whatever the size of the input
inline constexpr size_t kMostKept = 4096;
inline constexpr size_t kLongest = 64 << 10;
inline constexpr unsigned kHangSeconds = 60;

// What the reader said, without the numbers and quotes of this input.
inline std::string answer_of(const Target& target, const std::string& input) {
  const uint64_t before = live_bytes;
  peak_bytes = before;
  std::string answer = "fine";
  try {
    target.read(input);
  } catch (const Error& error) {
    answer = error.what();
  }
  const uint64_t most = kFreeBytes + target.bytes_per_byte * input.size();
  if (peak_bytes - before > most) {
    throw Failure(concat("reading ", input.size(), " bytes took ", peak_bytes - before));
  }
  std::string kind;
  bool quoted = false;
  for (const char c : answer) {
    if (c == '"') quoted = !quoted;
    if (!quoted && (c < '0' || c > '9')) kind += c;
  }
  return kind;
}

// Seeds of its own for a start, then changes of what was kept, for so many seconds.
inline void fuzz(const Target& target, double seconds) {
  using Clock = std::chrono::steady_clock;
  Random random(1);
  std::set<std::string> answers;
  std::vector<std::string> kept;
  for (int i = 0; i < 32; ++i) {
    kept.push_back(target.seed(random));
    check_equal(answer_of(target, kept.back()), "fine");
  }
  const auto end = Clock::now() + std::chrono::duration<double>(seconds);
  uint64_t n_inputs = 0;
  for (; Clock::now() < end; ++n_inputs) {
    std::string input = random.chance(8) ? target.seed(random) : kept[random.below(kept.size())];
    const std::string& other = kept[random.below(kept.size())];
    for (uint64_t i = 0; i <= random.below(4); ++i) target.mutate(input, random, other);
    if (input.size() > kLongest) input.resize(kLongest);
    ::alarm(kHangSeconds);
    const bool is_new = answers.insert(answer_of(target, input)).second;
    if (is_new && kept.size() < kMostKept) kept.push_back(std::move(input));
  }
  ::alarm(0);
  std::printf("      %s: %llu inputs, %zu answers\n", target.name.c_str(),
              static_cast<unsigned long long>(n_inputs), answers.size());
  check(answers.size() > 5);  // or nothing was reached
}

}  // namespace mtlqwen::testing
