#pragma once
namespace mtlqwen {
inline constexpr char kVersion[] = "0.1.0";  // the one source: pyproject.toml reads this line
}
