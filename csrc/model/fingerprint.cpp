#include "model/fingerprint.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <span>
#include <string_view>
#include <vector>

#include "io/checksum.hpp"
#include "model/tensor_names.hpp"

namespace mtlqwen {
namespace {

// Other states for the same weights (another order in planes or banks) take another number.
constexpr uint64_t kStateLayout = 2;
constexpr uint64_t kSamples = 4;
constexpr uint64_t kSampleBytes = 64;

// Everything that tells models apart, one after the other.
class Facts {
 public:
  void add(uint64_t value) {
    add(std::span(reinterpret_cast<const uint8_t*>(&value), sizeof(value)));
  }
  void add(std::string_view text) {
    add(text.size());
    add(std::span(reinterpret_cast<const uint8_t*>(text.data()), text.size()));
  }
  // The first bytes, the last, and what lies evenly between.
  void add_samples(std::span<const uint8_t> bytes) {
    add(bytes.size());
    const uint64_t count = std::min<uint64_t>(kSampleBytes, bytes.size());
    const uint64_t step = (bytes.size() - count) / (kSamples - 1);
    for (uint64_t i = 0; i < kSamples; ++i) add(bytes.subspan(i * step, count));
  }

  [[nodiscard]] Fingerprint fingerprint() const {
    Fingerprint out;
    const uint64_t halves[2] = {first_.value(), second_.value()};
    static_assert(sizeof(halves) == sizeof(out));
    std::memcpy(out.data(), halves, sizeof(out));
    return out;
  }

 private:
  void add(std::span<const uint8_t> bytes) {
    first_.add(bytes);
    second_.add(bytes);
  }

  Checksum first_{1};
  Checksum second_{2};
};

// All that states depend on; which ids end a text is not of that.
void add_config(Facts& facts, const ModelConfig& config) {
  for (const uint32_t value :
       {config.hidden, config.intermediate, config.vocab, config.n_heads, config.n_kv_heads,
        config.head_dim, config.rotary_dim, config.gdn_k_heads, config.gdn_v_heads,
        config.gdn_head_dim, uint32_t{config.k_head_tiled}, uint32_t{config.tied},
        std::bit_cast<uint32_t>(config.eps)}) {
    facts.add(value);
  }
  facts.add(std::bit_cast<uint64_t>(config.rope_theta));
  for (const LayerKind kind : config.layers) facts.add(static_cast<uint64_t>(kind));
}

void add_config(Facts& facts, const DflashConfig& config) {
  for (const uint32_t value :
       {config.hidden, config.intermediate, config.n_heads, config.n_kv_heads, config.head_dim,
        config.mask_id, std::bit_cast<uint32_t>(config.eps),
        std::bit_cast<uint32_t>(config.embedding_scale)}) {
    facts.add(value);
  }
  facts.add(std::bit_cast<uint64_t>(config.rope_theta));
  for (const uint32_t tap : config.taps) facts.add(tap);
  for (const DflashLayer& layer : config.layers) {
    facts.add(layer.window);
    facts.add(uint64_t{layer.causal});
  }
}

void add_matrix(Facts& facts, const TensorFiles& files, const TensorSpec& spec) {
  const MatrixRef matrix = files.matrix(spec.name, spec.shape[0], spec.shape[1]);
  const FormatInfo& format = info(matrix.format);
  const uint64_t bytes = matrix.rows * matrix.cols / format.qblock_elements * format.qblock_bytes;
  facts.add(format.name);
  facts.add_samples(files.file(matrix.file).bytes().subspan(matrix.offset, bytes));
}

void add_tensors(Facts& facts, const TensorFiles& files, const std::vector<TensorSpec>& specs) {
  for (const TensorSpec& spec : specs) {
    facts.add(spec.name);
    for (const uint64_t dim : spec.shape) facts.add(dim);
    if (spec.shape.size() == 2) {
      add_matrix(facts, files, spec);
    } else {
      const std::vector<float> values = files.vector(spec.name, spec.shape[0]);
      facts.add_samples(
          {reinterpret_cast<const uint8_t*>(values.data()), values.size() * sizeof(float)});
    }
  }
}

}  // namespace

Fingerprint fingerprint_of(const Weights& weights, const DrafterContexts& drafters) {
  Facts facts;
  facts.add(kStateLayout);
  add_config(facts, weights.config());
  add_tensors(facts, weights, tensor_specs(weights.config()));
  if (drafters.mtp) {
    facts.add("mtp");
    add_tensors(facts, weights, mtp_tensor_specs(weights.config()));
  }
  if (drafters.dflash != nullptr) {
    facts.add("dflash");
    add_config(facts, drafters.dflash->config());
    add_tensors(facts, *drafters.dflash, tensor_specs(drafters.dflash->config()));
  }
  return facts.fingerprint();
}

}  // namespace mtlqwen
