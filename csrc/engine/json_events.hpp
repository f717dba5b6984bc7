// Chrome's trace event format, written to a file as it comes.
#pragma once
#include <cstdint>
#include <fstream>
#include <string>
#include <string_view>

#include "engine/sequence.hpp"

namespace mtlqwen {

// A JSON array of events; times count from the start. Names need no escapes. Memory is bounded: what
// does not fit a buffer is written. A file that was not closed lacks its last bracket, which viewers
// forgive. Not thread safe.
class JsonEvents {
 public:
  JsonEvents(const std::string& path, Clock::time_point start);  // throws std::runtime_error

  // One event: begin(), any of the fields below, end().
  JsonEvents& begin(char phase, uint32_t track, std::string_view name);
  JsonEvents& at(Clock::time_point time);  // never before the start
  JsonEvents& lasting(Clock::time_point from, Clock::time_point to);
  JsonEvents& sequence(SequenceId id);  // of the async slices of one sequence
  // Inside of "args".
  JsonEvents& arg(std::string_view key, uint64_t value);
  JsonEvents& arg(std::string_view key, std::string_view text);
  JsonEvents& raw_arg(std::string_view key, std::string_view json);
  void end();

  void close();
  // All could be written so far.
  [[nodiscard]] bool is_good() const { return file_.good(); }

 private:
  void field(std::string_view key);
  void number(uint64_t value);
  void microseconds(Clock::duration duration);
  void arg_key(std::string_view key);
  void flush();

  std::ofstream file_;
  Clock::time_point start_;
  std::string buffer_;
  bool is_first_ = true;
  bool has_args_ = false;
};

// With the escapes that JSON asks for, quotes included.
[[nodiscard]] std::string json_string(std::string_view text);

}  // namespace mtlqwen
