// The tensors of one model, target or drafter, where kernels can read them: matrices inside the
// mapped files, small vectors in one arena.
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "gpu/device.hpp"
#include "model/arena.hpp"
#include "model/tensor.hpp"
#include "model/tensor_files.hpp"

namespace mtlqwen {

// Bytes of a file that become one buffer.
struct FileWindow {
  uint64_t begin = 0;
  uint64_t end = 0;
};

// The window that `tensor` lies in: whole pages of a file of `file_bytes`, `most` bytes at most.
// Throws CapacityError where it is larger than that.
[[nodiscard]] FileWindow window_of(FileWindow tensor, uint64_t file_bytes, uint64_t most,
                                   uint64_t page_bytes);

// Names are the Hugging Face ones without prefix ("layers.3.mlp.up_proj.weight"), whatever the file
// calls them. Whole pages of the files are wrapped without a copy. Tensors that a kernel could not
// load where they lie (offset below the alignment of the widest load) are copied, and counted in
// copied_bytes().
class DeviceWeights {
 public:
  DeviceWeights(Device& device, const TensorFiles& weights)
      : DeviceWeights(device, weights, device.max_buffer_bytes()) {}
  // No buffer is larger than so many bytes.
  DeviceWeights(Device& device, const TensorFiles& weights, uint64_t max_buffer_bytes);

  // Both give the same memory when they are asked again. Throws ModelError where it is missing, has another shape, or a
  // format without kernels.
  Matrix matrix(std::string_view name, uint32_t n, uint32_t k);
  // float32, in the engine's conventions (norms as they act).
  Span vector(std::string_view name, uint64_t n);

  [[nodiscard]] uint64_t mapped_bytes() const { return mapped_bytes_; }
  [[nodiscard]] uint64_t copied_bytes() const { return copied_bytes_; }
  [[nodiscard]] uint64_t arena_bytes() const;  // of what holds the copies

 private:
  struct View {
    uint32_t file = 0;
    FileWindow window;
    Buffer buffer;
  };
  // The view that holds bytes begin .. end of the file, made at first use.
  const View& view_of(uint32_t file, uint64_t begin, uint64_t end);
  Span copy(std::string_view name, const void* from, uint64_t bytes);

  Device& device_;
  const TensorFiles& weights_;
  uint64_t max_buffer_bytes_;
  std::vector<View> views_;
  std::vector<Arena> copies_;           // the last one takes the next copy
  std::map<std::string, Span> copied_;  // by name
  uint64_t mapped_bytes_ = 0;
  uint64_t copied_bytes_ = 0;
};

}  // namespace mtlqwen
