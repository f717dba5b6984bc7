#include "model/device_weights.hpp"

#include <algorithm>
#include <cstring>

#include "base/math.hpp"

namespace mtlqwen {

namespace {

constexpr uint64_t kCopyChunkBytes = 1U << 20;

}  // namespace

DeviceWeights::DeviceWeights(Device& device, const TensorFiles& weights)
    : device_(device), weights_(weights) {}

const DeviceWeights::View& DeviceWeights::add_view(uint32_t file, uint64_t begin, uint64_t end) {
  const MappedFile& mapped = weights_.file(file);
  views_.push_back({.file = file,
                    .begin = begin,
                    .end = end,
                    .buffer = device_.wrap_pages(mapped.pages() + begin, end - begin, "weights")});
  mapped_bytes_ += end - begin;
  return views_.back();
}

// Windows start every half of the largest buffer, so that a tensor of up to half its size lies in
// one of them whole.
const DeviceWeights::View& DeviceWeights::view_of(uint32_t file, uint64_t begin, uint64_t end) {
  for (const View& view : views_) {
    if (view.file == file && view.begin <= begin && end <= view.end) return view;
  }
  const uint64_t page = weights_.page_bytes();
  const uint64_t file_bytes = weights_.file(file).page_bytes();
  const uint64_t longest = device_.max_buffer_bytes() / page * page;
  if (file_bytes <= longest) return add_view(file, 0, file_bytes);
  const uint64_t stride = longest / 2 / page * page;
  uint64_t first = begin / stride * stride;
  if (end - first > longest) first = begin / page * page;
  if (end - first > longest) {
    throw CapacityError(concat("[weights] tensor of ", end - begin,
                               " bytes: larger than a buffer can be (", device_.max_buffer_bytes(),
                               "); use a smaller quantisation"));
  }
  return add_view(file, first, std::min(first + longest, file_bytes));
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
    matrix.span = view.buffer.span().part(ref.offset - view.begin, bytes);
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
