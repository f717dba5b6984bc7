#include "model/device_weights.hpp"

#include <algorithm>
#include <cstring>

#include "base/math.hpp"

namespace mtlqwen {

namespace {

constexpr uint64_t kCopyChunkBytes = 1U << 20;

}  // namespace

// Windows start every half of the largest buffer, so that a tensor of up to half its size lies in
// one of them whole; a larger one gets a window of its own.
FileWindow window_of(FileWindow tensor, uint64_t file_bytes, uint64_t most, uint64_t page_bytes) {
  const uint64_t longest = most / page_bytes * page_bytes;
  if (file_bytes <= longest) return {.begin = 0, .end = file_bytes};
  const uint64_t stride = std::max(longest / 2 / page_bytes, uint64_t{1}) * page_bytes;
  uint64_t begin = tensor.begin / stride * stride;
  if (tensor.end - begin > longest) begin = tensor.begin / page_bytes * page_bytes;
  if (tensor.end - begin > longest) {
    throw CapacityError(concat("[weights] tensor of ", tensor.end - tensor.begin,
                               " bytes: larger than a buffer can be (", most,
                               "); use a smaller quantisation"));
  }
  return {.begin = begin, .end = std::min(begin + longest, file_bytes)};
}

DeviceWeights::DeviceWeights(Device& device, const TensorFiles& weights, uint64_t max_buffer_bytes)
    : device_(device), weights_(weights), max_buffer_bytes_(max_buffer_bytes) {}

const DeviceWeights::View& DeviceWeights::view_of(uint32_t file, uint64_t begin, uint64_t end) {
  for (const View& view : views_) {
    if (view.file == file && view.window.begin <= begin && end <= view.window.end) return view;
  }
  const MappedFile& mapped = weights_.file(file);
  const FileWindow window = window_of({.begin = begin, .end = end}, mapped.page_bytes(),
                                      max_buffer_bytes_, TensorFiles::page_bytes());
  const uint64_t bytes = window.end - window.begin;
  views_.push_back({.file = file,
                    .window = window,
                    .buffer = device_.wrap_pages(mapped.pages() + window.begin, bytes, "weights")});
  mapped_bytes_ += bytes;
  return views_.back();
}

Span DeviceWeights::copy(std::string_view name, const void* from, uint64_t bytes) {
  if (copies_.empty() || copies_.back().remaining() < Arena::padded(bytes)) {
    copies_.emplace_back(device_, std::max(kCopyChunkBytes, bytes), Storage::kShared,
                         "small weights");
  }
  Arena& arena = copies_.back();
  const Span span = arena.take(bytes);
  std::memcpy(arena.at(span), from, bytes);
  copied_bytes_ += bytes;
  return copied_.emplace(name, span).first->second;
}

uint64_t DeviceWeights::arena_bytes() const {
  uint64_t bytes = 0;
  for (const Arena& arena : copies_) bytes += arena.buffer().bytes();
  return bytes;
}

Matrix DeviceWeights::matrix(std::string_view name, uint32_t n, uint32_t k) {
  const MatrixRef ref = weights_.matrix(name, n, k);
  const FormatInfo& format = info(ref.format);
  const uint64_t bytes = uint64_t{n} * (k / format.qblock_elements) * format.qblock_bytes;
  Matrix matrix{.span = {}, .format = ref.format, .n = n, .k = k};
  if (ref.offset % format.alignment != 0) {
    const auto known = copied_.find(std::string(name));
    matrix.span = known != copied_.end()
                      ? known->second
                      : copy(name, weights_.file(ref.file).pages() + ref.offset, bytes);
  } else {
    const View& view = view_of(ref.file, ref.offset, ref.offset + bytes);
    matrix.span = view.buffer.span().part(ref.offset - view.window.begin, bytes);
  }
  return matrix;
}

Span DeviceWeights::vector(std::string_view name, uint64_t n) {
  if (const auto known = copied_.find(std::string(name)); known != copied_.end()) {
    return known->second;
  }
  const std::vector<float> values = weights_.vector(name, n);
  return copy(name, values.data(), values.size() * sizeof(float));
}

}  // namespace mtlqwen
