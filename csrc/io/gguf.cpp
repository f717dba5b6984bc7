#include "io/gguf.hpp"

#include <bit>
#include <optional>
#include <utility>

#include "base/error.hpp"
#include "io/byte_reader.hpp"
#include "io/gguf_reader.hpp"

namespace mtlqwen {
namespace {

constexpr uint32_t kMagic = 0x46554747;  // "GGUF" in file order
constexpr uint64_t kDefaultAlignment = 32;
constexpr uint64_t kMaxAlignment = 1ULL << 16;

void check_version(const ByteReader& reader, uint32_t version) {
  if (version == 2 || version == 3) return;
  if ((version & 0xFFFF) == 0) {
    reader.fail("file is big-endian (want little-endian); convert it with gguf_convert_endian");
  }
  reader.fail("version of GGUF not supported (got ", version, ", want 2 or 3)");
}

uint64_t read_count(ByteReader& reader, std::string_view what) {
  const auto count = reader.read<uint64_t>(what);
  if (count > kMaxGgufEntries) {
    reader.fail(what, ": too many (got ", count, ", want at most ", kMaxGgufEntries, ")");
  }
  return count;
}

uint64_t alignment_of(const ByteReader& reader, const GgufMetadata& metadata) {
  const std::optional<uint32_t> alignment = metadata.find_u32("general.alignment");
  if (!alignment) return kDefaultAlignment;
  if (!std::has_single_bit(*alignment) || *alignment > kMaxAlignment) {
    reader.fail("general.alignment: bad value (got ", *alignment,
                ", want a power of two of at most ", kMaxAlignment, ")");
  }
  return *alignment;
}

}  // namespace

GgufFile read_gguf(const std::filesystem::path& path) {
  const std::string subject = concat("[gguf] ", path.string());
  GgufFile out{.weights = {.file = MappedFile(path), .tensors = {}, .unsupported = {}},
               .metadata = GgufMetadata(subject)};
  ByteReader reader(out.weights.file.bytes(), subject);
  if (reader.read<uint32_t>("magic") != kMagic) {
    reader.fail("not a GGUF file: it does not begin with \"GGUF\"; name a .gguf file");
  }
  check_version(reader, reader.read<uint32_t>("version"));
  const uint64_t n_tensors = read_count(reader, "tensor count");
  const uint64_t n_values = read_count(reader, "metadata count");
  read_gguf_values(reader, n_values, out.metadata);
  const uint64_t alignment = alignment_of(reader, out.metadata);
  read_gguf_tensors(reader, n_tensors, alignment, out.weights);
  return out;
}

}  // namespace mtlqwen
