// The two halves of a GGUF directory, read in file order; used by gguf.cpp only.
#pragma once
#include <cstdint>

#include "io/byte_reader.hpp"
#include "io/gguf_metadata.hpp"
#include "io/weight_file.hpp"

namespace mtlqwen {

// Limits far above any real file; they bound the memory that a hostile one can claim.
inline constexpr uint64_t kMaxGgufEntries = 1ULL << 20;       // metadata keys, or tensors
inline constexpr uint64_t kMaxGgufElements = 1ULL << 23;      // of all arrays together
inline constexpr uint64_t kMaxGgufStringBytes = 16ULL << 20;  // of one value
inline constexpr uint64_t kMaxGgufNameBytes = 1024;           // of one key or tensor name
inline constexpr uint32_t kMaxGgufArrayDepth = 4;
inline constexpr uint32_t kMaxGgufDimensions = 4;

// A string of GGUF: 64-bit length, then UTF-8 without a terminator.
[[nodiscard]] std::string read_gguf_string(ByteReader& reader, std::string_view what,
                                           uint64_t max_bytes);

// Reads `count` key-value pairs.
void read_gguf_values(ByteReader& reader, uint64_t count, GgufMetadata& out);

// Reads `count` tensor entries, and checks their data ranges against the length of the file.
void read_gguf_tensors(ByteReader& reader, uint64_t count, uint64_t alignment, WeightFile& out);

}  // namespace mtlqwen
