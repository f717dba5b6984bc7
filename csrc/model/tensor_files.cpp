#include "model/tensor_files.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "base/error.hpp"
#include "model/config.hpp"

namespace mtlqwen {
namespace {

constexpr std::string_view kConv = ".conv1d.weight";
constexpr std::string_view kWeight = ".weight";

std::string to_text(const std::vector<uint64_t>& shape) {
  std::string out = "[";
  for (const uint64_t dim : shape) out += concat(out.size() > 1 ? ", " : "", dim);
  return out + "]";
}

// Exact: every half has a float32 of the same value.
float half_to_float(uint16_t bits) {
  const uint32_t sign = static_cast<uint32_t>(bits & 0x8000U) << 16;
  const uint32_t exponent = (bits >> 10) & 0x1FU;
  const uint32_t mantissa = bits & 0x3FFU;
  if (exponent == 0) {
    const float magnitude = static_cast<float>(mantissa) * 0x1p-24F;
    return sign != 0 ? -magnitude : magnitude;
  }
  const uint32_t wide = exponent == 31 ? 255 : exponent + 112;  // the biases are 15 and 127
  return std::bit_cast<float>(sign | (wide << 23) | (mantissa << 13));
}

float load(const uint8_t* from, Format format) {
  if (format == Format::kF32) {
    float value = 0.0F;
    std::memcpy(&value, from, sizeof(value));
    return value;
  }
  uint16_t bits = 0;
  std::memcpy(&bits, from, sizeof(bits));
  return format == Format::kBF16 ? std::bit_cast<float>(static_cast<uint32_t>(bits) << 16)
                                 : half_to_float(bits);
}

}  // namespace

uint64_t TensorFiles::file_bytes() const {
  uint64_t bytes = 0;
  for (const WeightFile& file : files_) bytes += file.file.page_bytes();
  return bytes;
}

bool TensorFiles::has(const std::string& file_name) const {
  return std::any_of(files_.begin(), files_.end(), [&](const WeightFile& file) {
    return file.tensors.contains(file_name) || file.unsupported.contains(file_name);
  });
}

TensorFiles::Place TensorFiles::place(std::string_view name,
                                      const std::vector<uint64_t>& shape) const {
  const std::string spelled = spelling(name).name;
  for (uint32_t i = 0; i < files_.size(); ++i) {
    if (const auto found = files_[i].tensors.find(spelled); found != files_[i].tensors.end()) {
      const TensorInfo& tensor = found->second;
      if (tensor.shape == shape) return {i, &tensor};
      const bool mlx = !gguf_ && name.ends_with(kConv) && tensor.shape.size() == 3 &&
                       tensor.shape[1] == kConvTaps && tensor.shape[2] == 1;
      throw ModelError(
          concat("[weights] ", spelled, ": wrong shape (got ", to_text(tensor.shape), ", want ",
                 to_text(shape), ")",
                 mlx ? "; MLX conversions do not run: take the original checkpoint" : ""));
    }
    if (const auto found = files_[i].unsupported.find(spelled);
        found != files_[i].unsupported.end()) {
      throw ModelError(
          concat("[weights] ", spelled, ": format does not run (got ", found->second.format,
                 ", want F32, F16, BF16",
                 gguf_ ? ", Q4_0 to Q8_0, Q2_K to Q6_K, IQ1_S to IQ4_XS, MXFP4 or NVFP4" : "",
                 "); take a Q8_0 .gguf file or the original checkpoint"));
    }
  }
  throw ModelError(concat("[weights] ", spelled, ": missing in ", path_.string(), " (want ",
                          to_text(shape), "); the model is not complete"));
}

// NVFP4 files of other programs multiply a matrix by a number beside it.
void TensorFiles::refuse_factor(std::string_view matrix) const {
  if (!gguf_ || !matrix.ends_with(kWeight)) return;
  const std::string name = concat(matrix.substr(0, matrix.size() - kWeight.size()), ".scale");
  for (const WeightFile& file : files_) {
    const auto found = file.tensors.find(name);
    if (found == file.tensors.end() || info(found->second.format).qblock_elements != 1) continue;
    const TensorInfo& tensor = found->second;
    const float factor = load(file.file.bytes().data() + tensor.offset, tensor.format);
    if (factor == 1.0F) continue;
    throw ModelError(concat("[weights] ", name, ": factor of a matrix does not run (got ", factor,
                            ", want 1); take a file in another format"));
  }
}

MatrixRef TensorFiles::matrix(std::string_view name, uint64_t rows, uint64_t cols) const {
  const auto [file, tensor] = place(name, {rows, cols});
  refuse_factor(tensor->name);
  return {
      .file = file, .offset = tensor->offset, .format = tensor->format, .rows = rows, .cols = cols};
}

TensorFiles::Place TensorFiles::vector_place(std::string_view name, uint64_t count) const {
  std::vector<uint64_t> shape = {count};
  if (name.ends_with(kConv)) {
    shape = {count / kConvTaps, 1, kConvTaps};
    if (gguf_) shape.erase(shape.begin() + 1);
  }
  const Place found = place(name, shape);
  const FormatInfo& format = info(found.tensor->format);
  if (format.qblock_elements != 1) {
    throw ModelError(concat("[weights] ", found.tensor->name, ": format does not run (got ",
                            format.name, ", want F32, F16 or BF16)"));
  }
  return found;
}

std::vector<float> TensorFiles::vector(std::string_view name, uint64_t count) const {
  const auto [file, tensor] = vector_place(name, count);
  const Stored stored = spelling(name).stored;
  const uint8_t* data = files_[file].file.bytes().data() + tensor->offset;
  const uint64_t step = info(tensor->format).qblock_bytes;
  std::vector<float> out(count);
  for (uint64_t i = 0; i < count; ++i) {
    const float value = load(data + i * step, tensor->format);
    out[i] = stored == Stored::kLessOne      ? 1.0F + value
             : stored == Stored::kLogOfDecay ? -std::exp(value)
                                             : value;
  }
  return out;
}

void TensorFiles::check(const std::vector<TensorSpec>& specs) const {
  for (const TensorSpec& spec : specs) {
    if (spec.shape.size() == 2) {
      static_cast<void>(matrix(spec.name, spec.shape[0], spec.shape[1]));
    } else {
      static_cast<void>(vector_place(spec.name, spec.shape[0]));
    }
  }
}

}  // namespace mtlqwen
