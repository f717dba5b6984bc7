#include "io/gguf.hpp"

#include <algorithm>
#include <bit>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "base/error.hpp"
#include "io/byte_reader.hpp"
#include "io/gguf_reader.hpp"
#include "io/utf8.hpp"

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

GgufFile read_one(const std::filesystem::path& path) {
  const std::string subject = concat("[gguf] ", path.string());
  GgufFile out{.weights = {.file = MappedFile(path), .tensors = {}, .unsupported = {}},
               .metadata = GgufMetadata(subject),
               .more = {}};
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

// "-00002-of-00003.gguf", the part counted from 1.
std::string part_suffix(uint32_t part, uint32_t count) {
  const auto digits = [](uint32_t number) {
    const std::string text = std::to_string(number);
    return std::string(5 - std::min<size_t>(text.size(), 5), '0') + text;
  };
  return concat("-", digits(part), "-of-", digits(count), ".gguf");
}

// Puts the parts after the first into `out`. They are named after it.
void add_parts(GgufFile& out, const std::filesystem::path& path, uint32_t count) {
  const std::string subject = concat("[gguf] ", path.string());
  const uint32_t number = out.metadata.find_u32("split.no").value_or(0);
  if (number != 0) {
    throw FormatError(concat(subject, ": is part ", number + 1, " of ", count,
                             " (want the first); name the file that ends in ",
                             part_suffix(1, count)));
  }
  const std::string name = path.filename().string();
  const std::string suffix = part_suffix(1, count);
  if (!name.ends_with(suffix)) {
    throw FormatError(concat(subject, ": is the first of ", count, " parts, and its name does not ",
                             "tell the others' (want one that ends in ", suffix,
                             "); give the parts their names back"));
  }
  const std::string base = name.substr(0, name.size() - suffix.size());
  for (uint32_t part = 2; part <= count; ++part) {
    const std::filesystem::path place = path.parent_path() / (base + part_suffix(part, count));
    GgufFile read = read_one(place);
    const auto its_number = read.metadata.find_u32("split.no");
    if (its_number != part - 1 || read.metadata.find_u32("split.count") != count) {
      throw FormatError(concat("[gguf] ", place.string(), ": does not say that it is part ", part,
                               " of ", count, "; download all parts again"));
    }
    out.more.push_back(std::move(read.weights));
  }
}

uint64_t n_tensors(const WeightFile& file) { return file.tensors.size() + file.unsupported.size(); }

void check_parts(const GgufFile& file) {
  const std::string subject = concat("[gguf] ", file.weights.file.path().string());
  uint64_t total = n_tensors(file.weights);
  std::set<std::string_view> seen;
  const auto add = [&](std::string_view name) {
    if (seen.insert(name).second) return;
    throw FormatError(concat(subject, ": tensor ", printable(name), " lies in two parts; ",
                             "download all parts again"));
  };
  const auto add_all = [&](const WeightFile& part) {
    for (const auto& [name, tensor] : part.tensors) add(name);
    for (const auto& [name, tensor] : part.unsupported) add(name);
  };
  add_all(file.weights);
  for (const WeightFile& part : file.more) {
    add_all(part);
    total += n_tensors(part);
  }
  const auto wanted = file.metadata.find_u32("split.tensors.count");
  if (wanted && *wanted != total) {
    throw FormatError(concat(subject, ": the parts do not hold all tensors (got ", total, ", want ",
                             *wanted, "); download all parts again"));
  }
}

}  // namespace

bool GgufFile::has(const std::string& name) const {
  const auto holds = [&](const WeightFile& file) {
    return file.tensors.contains(name) || file.unsupported.contains(name);
  };
  return holds(weights) || std::any_of(more.begin(), more.end(), holds);
}

const TensorInfo* GgufFile::find(const std::string& name) const {
  if (const auto found = weights.tensors.find(name); found != weights.tensors.end()) {
    return &found->second;
  }
  for (const WeightFile& part : more) {
    if (const auto found = part.tensors.find(name); found != part.tensors.end()) {
      return &found->second;
    }
  }
  return nullptr;
}

GgufFile read_gguf(const std::filesystem::path& path) {
  GgufFile out = read_one(path);
  const uint32_t count = out.metadata.find_u32("split.count").value_or(1);
  if (count < 2) return out;
  add_parts(out, path, count);
  check_parts(out);
  return out;
}

}  // namespace mtlqwen
