#include "io/safetensors.hpp"

#include <algorithm>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "base/error.hpp"
#include "base/math.hpp"
#include "io/byte_reader.hpp"
#include "io/json.hpp"
#include "io/utf8.hpp"

namespace mtlqwen {
namespace {

constexpr uint64_t kMaxHeaderBytes = 100'000'000;  // the limit of the safetensors library
constexpr size_t kMaxDimensions = 8;

std::optional<Format> format_of(std::string_view dtype) {
  if (dtype == "F32") return Format::kF32;
  if (dtype == "F16") return Format::kF16;
  if (dtype == "BF16") return Format::kBF16;
  return std::nullopt;
}

// Turns the members of one header into the directory of a WeightFile.
class HeaderReader {
 public:
  HeaderReader(WeightFile& out, const ByteReader& reader, uint64_t data_start)
      : out_(out), reader_(reader), data_start_(data_start),
        data_bytes_(out.file.bytes().size() - data_start) {}

  void add(const JsonMember& member) {
    if (member.name == "__metadata__") return;
    name_ = printable(member.name);
    const std::string* dtype = string_member(member.value, "dtype");
    const auto [first, last] = offsets(member.value);
    ranges_.emplace_back(first, last);
    const std::optional<Format> format = format_of(*dtype);
    if (!format) {
      out_.unsupported.emplace(member.name, UnsupportedTensor{.format = printable(*dtype),
                                                              .shape = shape(member.value),
                                                              .bytes = last - first});
      return;
    }
    TensorInfo tensor{.name = member.name,
                      .format = *format,
                      .shape = shape(member.value),
                      .offset = data_start_ + first,
                      .bytes = last - first};
    check_bytes(tensor);
    out_.tensors.emplace(member.name, std::move(tensor));
  }

  void check_overlap() {
    std::sort(ranges_.begin(), ranges_.end());
    uint64_t end = 0;
    for (const auto& [first, last] : ranges_) {
      if (first < end) {
        reader_.fail("two tensors share the data byte ", first, "; the file is damaged");
      }
      end = last;
    }
  }

 private:
  const std::string* string_member(const JsonValue& entry, std::string_view key) const {
    const JsonValue* value = entry.find(key);
    if (value == nullptr || value->string() == nullptr) {
      reader_.fail(name_, ".", key, ": want a string (got ",
                   value == nullptr ? "nothing" : value->describe(), ")");
    }
    return value->string();
  }

  const JsonArray& array_member(const JsonValue& entry, std::string_view key) const {
    const JsonValue* value = entry.find(key);
    if (value == nullptr || value->array() == nullptr) {
      reader_.fail(name_, ".", key, ": want an array (got ",
                   value == nullptr ? "nothing" : value->describe(), ")");
    }
    return *value->array();
  }

  uint64_t integer(const JsonValue& value, std::string_view key) const {
    const std::optional<uint64_t> number = value.unsigned_integer();
    if (!number) {
      reader_.fail(name_, ".", key, ": want integers of at least 0 (got ", value.describe(), ")");
    }
    return *number;
  }

  std::pair<uint64_t, uint64_t> offsets(const JsonValue& entry) const {
    const JsonArray& pair = array_member(entry, "data_offsets");
    if (pair.size() != 2) {
      reader_.fail(name_, ".data_offsets: want 2 integers (got ", pair.size(), ")");
    }
    const uint64_t first = integer(pair[0], "data_offsets");
    const uint64_t last = integer(pair[1], "data_offsets");
    if (first > last || last > data_bytes_) {
      reader_.fail(name_, ".data_offsets: range leaves the file (got ", first, " to ", last,
                   ", want within 0 to ", data_bytes_, "); download the file again");
    }
    return {first, last};
  }

  std::vector<uint64_t> shape(const JsonValue& entry) const {
    const JsonArray& dims = array_member(entry, "shape");
    if (dims.size() > kMaxDimensions) {
      reader_.fail(name_, ".shape: too many dimensions (got ", dims.size(), ", want at most ",
                   kMaxDimensions, ")");
    }
    std::vector<uint64_t> out;
    for (const JsonValue& dim : dims) out.push_back(integer(dim, "shape"));
    return out;
  }

  void check_bytes(const TensorInfo& tensor) const {
    std::optional<uint64_t> bytes = info(tensor.format).qblock_bytes;
    for (const uint64_t dim : tensor.shape) bytes = bytes ? checked_mul(*bytes, dim) : bytes;
    if (bytes != tensor.bytes) {
      reader_.fail(name_, ": shape and size disagree (got ", tensor.bytes, " bytes, want ",
                   bytes ? concat(*bytes) : "more than 2^64", ")");
    }
  }

  WeightFile& out_;
  const ByteReader& reader_;
  uint64_t data_start_;
  uint64_t data_bytes_;
  std::string name_;
  std::vector<std::pair<uint64_t, uint64_t>> ranges_;
};

// Shard names stay inside the directory.
const std::string& shard_name(const JsonMember& entry, const std::string& subject) {
  const std::string* name = entry.value.string();
  const bool plain = name != nullptr && name->ends_with(".safetensors") &&
                     name->find_first_of(std::string_view("/\\\0", 3)) == std::string::npos;
  if (!plain) {
    throw FormatError(concat(subject, ": weight_map.", printable(entry.name),
                             ": not the name of a shard in this directory (got ",
                             entry.value.describe(), ")"));
  }
  return *name;
}

bool holds(const WeightFile& file, const std::string& name) {
  return file.tensors.contains(name) || file.unsupported.contains(name);
}

void check_unique(const std::vector<WeightFile>& files) {
  std::set<std::string_view> seen;
  const auto add = [&](const WeightFile& file, const std::string& name) {
    if (!seen.insert(name).second) {
      throw FormatError(concat("[safetensors] ", file.file.path().string(), ": tensor ",
                               printable(name), " lies in another shard too"));
    }
  };
  for (const WeightFile& file : files) {
    for (const auto& [name, tensor] : file.tensors) add(file, name);
    for (const auto& [name, tensor] : file.unsupported) add(file, name);
  }
}

std::vector<WeightFile> read_shards(const std::filesystem::path& index_path) {
  const std::string subject = concat("[safetensors] ", index_path.string());
  const JsonValue index = read_json(index_path);
  const JsonValue* map = index.find("weight_map");
  if (map == nullptr || map->object() == nullptr || map->object()->empty()) {
    throw FormatError(concat(subject, ": has no weight_map (got ",
                             map == nullptr ? "nothing" : map->describe(), ", want an object)"));
  }
  std::set<std::string> names;
  for (const JsonMember& entry : *map->object()) names.insert(shard_name(entry, subject));
  std::vector<WeightFile> files;
  for (const std::string& name : names) {
    files.push_back(read_safetensors(index_path.parent_path() / name));
  }
  for (const JsonMember& entry : *map->object()) {
    const auto shard = std::distance(names.begin(), names.find(*entry.value.string()));
    if (!holds(files[static_cast<size_t>(shard)], entry.name)) {
      throw FormatError(concat(subject, ": tensor ", printable(entry.name), " is missing in ",
                               printable(*entry.value.string()), "; download the shard again"));
    }
  }
  check_unique(files);
  return files;
}

}  // namespace

WeightFile read_safetensors(const std::filesystem::path& path) {
  WeightFile out{.file = MappedFile(path), .tensors = {}, .unsupported = {}};
  const std::string subject = concat("[safetensors] ", path.string());
  ByteReader reader(out.file.bytes(), subject);
  const auto header_bytes = reader.read<uint64_t>("header length");
  if (header_bytes > kMaxHeaderBytes) {
    reader.fail("header length: not a safetensors file (got ", header_bytes, ", want at most ",
                kMaxHeaderBytes, ")");
  }
  const JsonValue header = parse_json(reader.text(header_bytes, "header"), subject);
  if (header.object() == nullptr) {
    reader.fail("header: want an object (got ", header.describe(), ")");
  }
  HeaderReader entries(out, reader, reader.position());
  for (const JsonMember& member : *header.object()) entries.add(member);
  entries.check_overlap();
  return out;
}

std::vector<WeightFile> read_safetensors_directory(const std::filesystem::path& path) {
  const std::filesystem::path single = path / "model.safetensors";
  const std::filesystem::path index = path / "model.safetensors.index.json";
  std::error_code ignored;
  if (std::filesystem::exists(single, ignored)) {
    std::vector<WeightFile> files;
    files.push_back(read_safetensors(single));
    return files;
  }
  if (std::filesystem::exists(index, ignored)) return read_shards(index);
  throw FormatError(concat("[safetensors] ", path.string(),
                           ": has no weights (want model.safetensors",
                           " or model.safetensors.index.json)"));
}

}  // namespace mtlqwen
