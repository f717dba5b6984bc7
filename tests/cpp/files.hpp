// For tests of file readers: bytes put together by hand, files that vanish, and a watch on
// allocations.
#pragma once
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <vector>

namespace mtlqwen::testing {

// The largest single request to operator new since the last reset; counted by watch_new.hpp.
inline thread_local uint64_t largest_allocation = 0;

// A file in the making, little-endian.
class Bytes {
 public:
  template <class T>
  Bytes& put(T value) {
    const size_t place = data_.size();
    data_.resize(place + sizeof(T));
    std::memcpy(data_.data() + place, &value, sizeof(T));
    return *this;
  }
  Bytes& raw(std::string_view text) {
    const size_t place = data_.size();
    data_.resize(place + text.size());
    // Not insert(): at -O3 g++ 12 takes its copy for an overflow.
    std::copy(text.begin(), text.end(), data_.begin() + static_cast<std::ptrdiff_t>(place));
    return *this;
  }
  // A GGUF string.
  Bytes& text(std::string_view value) { return put<uint64_t>(value.size()).raw(value); }
  Bytes& pad_to(size_t multiple) {
    data_.resize((data_.size() + multiple - 1) / multiple * multiple);
    return *this;
  }
  Bytes& zeros(size_t count) {
    data_.resize(data_.size() + count);
    return *this;
  }
  [[nodiscard]] size_t size() const { return data_.size(); }
  [[nodiscard]] const std::vector<uint8_t>& data() const { return data_; }
  uint8_t& operator[](size_t index) { return data_[index]; }

 private:
  std::vector<uint8_t> data_;
};

// A fresh directory, removed with all that lies in it.
class TempDirectory {
 public:
  TempDirectory() {
    std::string name = (std::filesystem::temp_directory_path() / "mtlqwen_XXXXXX").string();
    if (::mkdtemp(name.data()) == nullptr) throw std::runtime_error("no temporary directory");
    path_ = name;
  }
  TempDirectory(const TempDirectory&) = delete;
  TempDirectory& operator=(const TempDirectory&) = delete;
  ~TempDirectory() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }

  [[nodiscard]] const std::filesystem::path& path() const { return path_; }

  // Writes the first `count` bytes.
  [[nodiscard]] std::filesystem::path write(const std::string& name, const Bytes& bytes,
                                            size_t count) const {
    std::ofstream file(path_ / name, std::ios::binary | std::ios::trunc);
    file.write(reinterpret_cast<const char*>(bytes.data().data()),
               static_cast<std::streamsize>(count));
    return path_ / name;
  }
  [[nodiscard]] std::filesystem::path write(const std::string& name, const Bytes& bytes) const {
    return write(name, bytes, bytes.size());
  }
  [[nodiscard]] std::filesystem::path write(const std::string& name, std::string_view text) const {
    return write(name, Bytes().raw(text));
  }

 private:
  std::filesystem::path path_;
};

}  // namespace mtlqwen::testing
