#include "hostmetal/environment.hpp"

#include <charconv>
#include <cstdlib>
#include <random>
#include <string_view>

#include "base/error.hpp"

namespace mtlqwen::hostmetal {
namespace {

std::string_view variable(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

void turn_on(HostChecks& checks, std::string_view word) {
  if (word == "shuffle") {
    checks.shuffle = true;
  } else if (word == "poison") {
    checks.poison = true;
  } else if (word == "guard") {
    checks.guard = true;
  } else if (word == "residency") {
    checks.residency = true;
  } else {
    throw DeviceError(concat("[hostmetal] MTLQWEN_HOST_CHECK: unknown word (got '", word,
                             "', want shuffle, poison, guard or residency, separated by commas); "
                             "correct or unset it"));
  }
}

uint64_t parse_seed(std::string_view text) {
  if (text.empty()) {
    std::random_device random;
    return random();
  }
  uint64_t seed = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, seed);
  if (error == std::errc() && stop == end) return seed;
  throw DeviceError(concat("[hostmetal] MTLQWEN_HOST_SEED: not a number (got '", text,
                           "', want 0 to 2^64 - 1); correct or unset it"));
}

HostChecks parse_checks(std::string_view words, std::string_view seed) {
  HostChecks checks;
  while (!words.empty()) {
    const size_t comma = words.find(',');
    turn_on(checks, words.substr(0, comma));
    words = comma == std::string_view::npos ? std::string_view() : words.substr(comma + 1);
  }
  if (checks.any()) checks.seed = parse_seed(seed);
  return checks;
}

bool parse_kernels(std::string_view word) {
  if (word.empty() || word == "auto") return true;
  if (word == "msl") return false;
  throw DeviceError(concat("[hostmetal] MTLQWEN_HOST_KERNELS: unknown value (got '", word,
                           "', want auto or msl); correct or unset it"));
}

}  // namespace

Environment read_environment() {
  return {.isa = std::string(variable("MTLQWEN_HOST_ISA")),
          .has_twins = parse_kernels(variable("MTLQWEN_HOST_KERNELS")),
          .checks = parse_checks(variable("MTLQWEN_HOST_CHECK"), variable("MTLQWEN_HOST_SEED"))};
}

}  // namespace mtlqwen::hostmetal
