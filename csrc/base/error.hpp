// The four error classes of the library and the helper that builds their messages.
// Message form: `[area] subject: what is wrong (got X, want Y); what to do`.
#pragma once
#include <sstream>
#include <stdexcept>
#include <string>

namespace mtlqwen {

// Base of all errors that a user can cause or meet. src/ translates each to the Python class of its name.
struct Error : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// A file is not valid GGUF, safetensors or JSON, or its offsets leave the file.
struct FormatError : Error {
  using Error::Error;
};

// The file is valid, but it is not a Qwen 3.5 model that we run.
struct ModelError : Error {
  using Error::Error;
};

// Memory, context or bundles do not suffice.
struct CapacityError : Error {
  using Error::Error;
};

// The device refused, or a command buffer failed.
struct DeviceError : Error {
  using Error::Error;
};

// The pass was stopped on request (cancel, close); nothing was committed. Never reaches a user.
struct Aborted : DeviceError {
  using DeviceError::DeviceError;
};

// concat("[gguf] ", name, ": ", n) -> std::string; g++ 12 has no <format>.
template <class... Parts>
[[nodiscard]] std::string concat(const Parts&... parts) {
  std::ostringstream out;
  (out << ... << parts);
  return out.str();
}

}  // namespace mtlqwen
