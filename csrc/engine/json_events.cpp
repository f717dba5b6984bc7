#include "engine/json_events.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <stdexcept>

#include "base/error.hpp"

namespace mtlqwen {

namespace {

constexpr size_t kBufferBytes = 256 << 10;

}  // namespace

std::string json_string(std::string_view text) {
  constexpr char kHex[] = "0123456789abcdef";
  constexpr unsigned char kFirstPlain = 0x20;
  std::string quoted = "\"";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      quoted += '\\';
      quoted += c;
    } else if (byte < kFirstPlain) {
      quoted += "\\u00";
      quoted += kHex[byte >> 4];
      quoted += kHex[byte & 15];
    } else {
      quoted += c;
    }
  }
  quoted += '"';
  return quoted;
}

JsonEvents::JsonEvents(const std::string& path, Clock::time_point start)
    : file_(path, std::ios::binary | std::ios::trunc), start_(start) {
  if (!file_) {
    throw std::runtime_error(concat("[trace] ", path, ": cannot be written; choose another path"));
  }
  buffer_.reserve(kBufferBytes + kBufferBytes / 4);
  buffer_ += "[\n";
}

JsonEvents& JsonEvents::begin(char phase, uint32_t track, std::string_view name) {
  if (!is_first_) buffer_ += ",\n";
  is_first_ = false;
  has_args_ = false;
  buffer_ += "{\"ph\":\"";
  buffer_ += phase;
  buffer_ += "\",\"pid\":1,\"tid\":";
  number(track);
  field("name");
  buffer_ += '"';
  buffer_ += name;
  buffer_ += '"';
  return *this;
}

JsonEvents& JsonEvents::at(Clock::time_point time) {
  field("ts");
  microseconds(std::max(time, start_) - start_);
  return *this;
}

JsonEvents& JsonEvents::lasting(Clock::time_point from, Clock::time_point to) {
  at(from);
  field("dur");
  from = std::max(from, start_);
  microseconds(std::max(to, from) - from);
  return *this;
}

JsonEvents& JsonEvents::sequence(SequenceId id) {
  field("cat");
  buffer_ += "\"sequence\"";
  field("id");
  number(id);
  return *this;
}

JsonEvents& JsonEvents::arg(std::string_view key, uint64_t value) {
  arg_key(key);
  number(value);
  return *this;
}

JsonEvents& JsonEvents::arg(std::string_view key, std::string_view text) {
  return raw_arg(key, json_string(text));
}

JsonEvents& JsonEvents::raw_arg(std::string_view key, std::string_view json) {
  arg_key(key);
  buffer_ += json;
  return *this;
}

void JsonEvents::end() {
  if (has_args_) buffer_ += '}';
  buffer_ += '}';
  if (buffer_.size() >= kBufferBytes) flush();
}

void JsonEvents::close() {
  buffer_ += "\n]\n";
  flush();
  file_.close();
}

void JsonEvents::field(std::string_view key) {
  buffer_ += ",\"";
  buffer_ += key;
  buffer_ += "\":";
}

void JsonEvents::number(uint64_t value) {
  std::array<char, 20> digits;  // of 2^64 - 1
  const auto result = std::to_chars(digits.data(), digits.data() + digits.size(), value);
  buffer_.append(digits.data(), result.ptr);
}

// The format counts microseconds; three digits behind the point keep the nanoseconds.
void JsonEvents::microseconds(Clock::duration duration) {
  constexpr uint64_t kThousand = 1000;
  const auto ns = static_cast<uint64_t>(std::chrono::nanoseconds(duration).count());
  number(ns / kThousand);
  const uint64_t rest = ns % kThousand;
  buffer_ += '.';
  buffer_ += static_cast<char>('0' + rest / 100);
  buffer_ += static_cast<char>('0' + rest / 10 % 10);
  buffer_ += static_cast<char>('0' + rest % 10);
}

void JsonEvents::arg_key(std::string_view key) {
  buffer_ += has_args_ ? ",\"" : ",\"args\":{\"";
  has_args_ = true;
  buffer_ += key;
  buffer_ += "\":";
}

void JsonEvents::flush() {
  file_.write(buffer_.data(), static_cast<std::streamsize>(buffer_.size()));
  buffer_.clear();
}

}  // namespace mtlqwen
