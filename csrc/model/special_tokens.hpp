// The tokens that end a sequence, known by name: files name only some of them by id.
#pragma once
#include <algorithm>
#include <charconv>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

namespace mtlqwen {

[[nodiscard]] inline bool is_end_token(std::string_view token) {
  return token == "<|im_end|>" || token == "<|endoftext|>";
}

// Keeps the order of arrival, without repeats.
inline void add_id(int32_t id, std::vector<int32_t>& ids) {
  if (std::find(ids.begin(), ids.end(), id) == ids.end()) ids.push_back(id);
}

// A whole decimal number of at least 0, else nothing.
[[nodiscard]] inline std::optional<int32_t> parse_id(std::string_view text) {
  int32_t id = 0;
  const auto* end = text.data() + text.size();
  const auto result = std::from_chars(text.data(), end, id);
  if (result.ec != std::errc() || result.ptr != end || id < 0) return std::nullopt;
  return id;
}

}  // namespace mtlqwen
