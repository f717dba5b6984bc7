// Tensor entries of GGUF: names, shapes, types and data ranges.
#include <algorithm>
#include <array>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/math.hpp"
#include "io/gguf_reader.hpp"
#include "io/utf8.hpp"

namespace mtlqwen {
namespace {

std::optional<Format> format_of(uint32_t type) {
  for (const FormatInfo& known : formats()) {
    if (known.gguf_type == type) return known.format;
  }
  return std::nullopt;
}

// Of types that do not run (ggml.h of llama.cpp); the number of one that is not known.
std::string type_name(uint32_t type) {
  struct Named {
    uint32_t type;
    std::string_view name;
  };
  static constexpr std::array kOthers = {Named{9, "Q8_1"}, Named{15, "Q8_K"},  Named{24, "I8"},
                                         Named{25, "I16"}, Named{26, "I32"},   Named{27, "I64"},
                                         Named{28, "F64"}, Named{34, "TQ1_0"}, Named{35, "TQ2_0"},
                                         Named{41, "Q1_0"}};
  for (const Named& other : kOthers) {
    if (other.type == type) return std::string(other.name);
  }
  return concat("type ", type);
}

class TensorReader {
 public:
  TensorReader(ByteReader& reader, uint64_t alignment, WeightFile& out)
      : reader_(reader), alignment_(alignment), out_(out) {}

  void read(uint64_t index) {
    std::string name = read_gguf_string(reader_, "tensor name", kMaxGgufNameBytes);
    if (name.empty()) reader_.fail("tensor ", index, " has no name; the file is damaged");
    name_ = printable(name);
    std::vector<uint64_t> dims = shape();
    const auto type = reader_.read<uint32_t>(name_);
    const uint64_t offset = aligned_offset();
    if (out_.tensors.contains(name) || out_.unsupported.contains(name)) {
      reader_.fail("tensor ", name_, " occurs twice; the file is damaged");
    }
    const std::optional<Format> format = format_of(type);
    if (!format) {
      unsupported_.emplace_back(offset, name);
      out_.unsupported.emplace(
          std::move(name), UnsupportedTensor{.format = type_name(type), .shape = std::move(dims)});
      return;
    }
    const uint64_t bytes = data_bytes(info(*format), dims);
    TensorInfo tensor{.name = name,
                      .format = *format,
                      .shape = std::move(dims),
                      .offset = offset,
                      .bytes = bytes};
    out_.tensors.emplace(std::move(name), std::move(tensor));
  }

  // Makes offsets count from the start of the file; to be called once, after the last entry.
  void place_data() {
    const uint64_t data_start = align_up(reader_.position(), alignment_);
    const uint64_t file_bytes = reader_.position() + reader_.left();
    const uint64_t data_bytes = file_bytes > data_start ? file_bytes - data_start : 0;
    std::vector<std::pair<uint64_t, uint64_t>> ranges;
    for (auto& [name, tensor] : out_.tensors) {
      check_range(printable(name), tensor.offset, tensor.bytes, data_bytes);
      ranges.emplace_back(tensor.offset, tensor.offset + tensor.bytes);
      tensor.offset += data_start;
    }
    for (const auto& [offset, name] : unsupported_) {
      check_range(printable(name), offset, 1, data_bytes);
    }
    std::sort(ranges.begin(), ranges.end());
    measure_unsupported(ranges, data_bytes);
    uint64_t end = 0;
    for (const auto& [first, last] : ranges) {
      if (first < end) reader_.fail("two tensors share the data byte ", first);
      end = last;
    }
  }

 private:
  // Whatever their types are, they end where the next tensor begins.
  void measure_unsupported(const std::vector<std::pair<uint64_t, uint64_t>>& ranges,
                           uint64_t data_bytes) {
    std::sort(unsupported_.begin(), unsupported_.end());
    auto next = ranges.begin();
    for (auto place = unsupported_.begin(); place != unsupported_.end(); ++place) {
      const uint64_t offset = place->first;
      next = std::find_if(next, ranges.end(), [&](const auto& r) { return r.first > offset; });
      uint64_t end = next == ranges.end() ? data_bytes : next->first;
      if (place + 1 != unsupported_.end()) end = std::min(end, (place + 1)->first);
      out_.unsupported.at(place->second).bytes = end - offset;
    }
  }

  // Row-major: the file has the innermost dimension first.
  std::vector<uint64_t> shape() {
    const auto n_dims = reader_.read<uint32_t>(name_);
    if (n_dims == 0 || n_dims > kMaxGgufDimensions) {
      reader_.fail(name_, ": bad number of dimensions (got ", n_dims, ", want 1 to ",
                   kMaxGgufDimensions, ")");
    }
    std::vector<uint64_t> dims(n_dims);
    for (uint64_t& dim : dims) {
      dim = reader_.read<uint64_t>(name_);
      if (dim == 0) reader_.fail(name_, ": a dimension is 0; the file is damaged");
    }
    std::reverse(dims.begin(), dims.end());
    return dims;
  }

  uint64_t aligned_offset() {
    const auto offset = reader_.read<uint64_t>(name_);
    if (offset % alignment_ != 0) {
      reader_.fail(name_, ": data offset is not aligned (got ", offset, ", want a multiple of ",
                   alignment_, ")");
    }
    return offset;
  }

  uint64_t data_bytes(const FormatInfo& format, const std::vector<uint64_t>& dims) const {
    if (dims.back() % format.qblock_elements != 0) {
      reader_.fail(name_, ": rows do not fill their ", format.name, " qblocks (got ", dims.back(),
                   ", want a multiple of ", format.qblock_elements, ")");
    }
    std::optional<uint64_t> bytes =
        checked_mul(dims.back() / format.qblock_elements, format.qblock_bytes);
    for (size_t i = 0; bytes && i + 1 < dims.size(); ++i) bytes = checked_mul(*bytes, dims[i]);
    if (!bytes) reader_.fail(name_, ": shape overflows 64 bits; the file is damaged");
    return *bytes;
  }

  void check_range(const std::string& name, uint64_t offset, uint64_t bytes,
                   uint64_t data_bytes) const {
    const std::optional<uint64_t> end = checked_add(offset, bytes);
    if (end && *end <= data_bytes) return;
    reader_.fail(name, ": data leaves the file (got offset ", offset, " and ", bytes,
                 " bytes, want within ", data_bytes, "); download the file again");
  }

  ByteReader& reader_;
  uint64_t alignment_;
  WeightFile& out_;
  std::string name_;
  std::vector<std::pair<uint64_t, std::string>> unsupported_;  // offset and name
};

}  // namespace

void read_gguf_tensors(ByteReader& reader, uint64_t count, uint64_t alignment, WeightFile& out) {
  TensorReader tensors(reader, alignment, out);
  for (uint64_t i = 0; i < count; ++i) tensors.read(i);
  tensors.place_data();
}

}  // namespace mtlqwen
