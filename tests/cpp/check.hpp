// The smallest test harness that names the file and line of a failed check. A test throws at its
// first failed check; the program runs all of its tests and counts.
#pragma once
#include <cstdio>
#include <exception>
#include <functional>
#include <source_location>
#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace mtlqwen::testing {

using Location = std::source_location;

struct Failure : std::runtime_error {
  using std::runtime_error::runtime_error;
};

[[noreturn]] inline void fail(const std::string& what, const Location& at) {
  std::ostringstream text;
  text << at.file_name() << ':' << at.line() << ": " << what;
  throw Failure(text.str());
}

inline void check(bool holds, const Location& at = Location::current()) {
  if (!holds) fail("does not hold", at);
}

template <class Got, class Want>
void check_equal(const Got& got, const Want& want, const Location& at = Location::current()) {
  if (got == want) return;
  std::ostringstream text;
  text << "got " << got << ", want " << want;
  fail(text.str(), at);
}

// The body must throw an E (or a class derived from it) whose message contains `part`.
template <class E>
void check_throws(const std::function<void()>& body, std::string_view part,
                  const Location& at = Location::current()) {
  try {
    body();
  } catch (const E& error) {
    const std::string_view text = error.what();
    if (text.find(part) != std::string_view::npos) return;
    fail("message \"" + std::string(text) + "\" lacks \"" + std::string(part) + "\"", at);
  } catch (const std::exception& error) {
    fail("wrong class of error: " + std::string(error.what()), at);
  }
  fail("nothing was thrown", at);
}

struct Test {
  const char* name;
  std::function<void()> body;
};

// Exit status of the program: 0 where all pass. With a filter only tests whose name contains it
// run.
inline int run(const std::vector<Test>& tests, std::string_view filter = {}) {
  int n_failed = 0;
  int n_run = 0;
  for (const Test& test : tests) {
    if (std::string_view(test.name).find(filter) == std::string_view::npos) continue;
    ++n_run;
    try {
      test.body();
      std::printf("ok    %s\n", test.name);
    } catch (const std::exception& error) {
      ++n_failed;
      std::printf("FAIL  %s: %s\n", test.name, error.what());
    }
    std::fflush(stdout);
  }
  std::printf("%d tests, %d failed\n", n_run, n_failed);
  return n_failed == 0 && n_run > 0 ? 0 : 1;
}

}  // namespace mtlqwen::testing
