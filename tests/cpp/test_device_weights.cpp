// Weights in buffers: windows of files, no larger than a buffer may be, whatever the files' sizes.
#include <algorithm>
#include <random>
#include <vector>

#include "base/error.hpp"
#include "check.hpp"
#include "gpu/device.hpp"
#include "model/device_weights.hpp"
#include "model/weights.hpp"

namespace mtlqwen::testing {
namespace {

constexpr uint64_t kPage = 4096;
constexpr uint64_t kMiB = 1 << 20;
constexpr const char* kModel = "python/mtlqwen/models/tiny/tiny-qwen3.5-Q8_0.gguf";

void test_windows() {
  std::minstd_rand random(1);
  const auto below = [&](uint64_t n) { return random() % n; };
  uint64_t n_refused = 0;
  for (int round = 0; round < 20'000; ++round) {
    const uint64_t file = kPage * (1 + below(40));
    const uint64_t most = kPage + below(44 * kPage);
    const uint64_t begin = below(file);
    const uint64_t end = begin + 1 + below(file - begin);
    const uint64_t longest = most / kPage * kPage;
    FileWindow window;
    try {
      window = window_of({.begin = begin, .end = end}, file, most, kPage);
    } catch (const CapacityError&) {
      ++n_refused;
      check(end - begin / kPage * kPage > longest);
      continue;
    }
    check(window.begin <= begin && end <= window.end && window.end <= file);
    check(window.begin % kPage == 0 && window.end % kPage == 0);
    check(window.end - window.begin <= most);
    check(file > longest || (window.begin == 0 && window.end == file));
  }
  check(n_refused > 1000 && n_refused < 15'000);
}

// Of the bundled model, whose largest matrix has 4.5 MB.
void test_a_model_in_small_buffers(const char* library) {
  const Weights weights(kModel);
  const std::vector<TensorSpec> specs = tensor_specs(weights.config());
  uint64_t whole = 0;
  for (const uint64_t most : {1024 * kMiB, 20 * kMiB, 10 * kMiB, 5 * kMiB + 5}) {
    Device device(library);
    DeviceWeights split(device, weights, most);
    uint64_t n_matrices = 0;
    for (const TensorSpec& spec : specs) {
      if (spec.shape.size() != 2) continue;
      const auto n = static_cast<uint32_t>(spec.shape[0]);
      const auto k = static_cast<uint32_t>(spec.shape[1]);
      const Matrix matrix = split.matrix(spec.name, n, k);
      const MatrixRef ref = weights.matrix(spec.name, n, k);
      // The software device's addresses are those of the process.
      const uint8_t* wanted = weights.file(ref.file).pages() + ref.offset;
      const auto* got = reinterpret_cast<const uint8_t*>(matrix.span.address);
      check(std::equal(wanted, wanted + matrix.span.bytes, got));
      check(split.matrix(spec.name, n, k).span.address == matrix.span.address);
      ++n_matrices;
    }
    check(n_matrices > 50);
    if (whole == 0) whole = split.mapped_bytes();
    check(split.mapped_bytes() >= whole / 2 && split.mapped_bytes() <= 2 * whole + most);
    check_equal(split.copied_bytes(), 0U);
  }
  check_equal(whole, weights.file_bytes());
  Device device(library);
  DeviceWeights split(device, weights, 4 * kMiB);
  const ModelConfig& config = weights.config();
  check_throws<CapacityError>(
      [&] { static_cast<void>(split.matrix("embed_tokens.weight", config.vocab, config.hidden)); },
      "larger than a buffer can be (4194304)");
}

}  // namespace
}  // namespace mtlqwen::testing

int main(int argc, char** argv) {
  using namespace mtlqwen::testing;
  if (argc < 2) return 2;
  return run({{"windows", test_windows},
              {"a model in small buffers", [&] { test_a_model_in_small_buffers(argv[1]); }}});
}
