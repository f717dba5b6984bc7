#include "model/config.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <string_view>

#include "base/error.hpp"

namespace mtlqwen {
namespace {

// What the kernels take (metal/attention.metal, metal/gdn.metal) and, for the rest, limits above
// every released model but low enough that widths fit 32 bits and sizes of tensors 64.
constexpr uint32_t kMaxWidth = 1U << 16;
constexpr uint32_t kMaxLayers = 1024;
constexpr uint32_t kMaxVocab = 1U << 22;
constexpr uint32_t kMaxContext = 1U << 24;
constexpr uint32_t kMaxHeadDim = 256;
constexpr uint32_t kMaxHeadGroup = 8;  // query heads that share a K/V head
constexpr uint32_t kWidthStep = 32;    // a Q8_0 qblock, and the lanes of a simdgroup

class Checker {
 public:
  explicit Checker(const std::string& subject) : subject_(subject) {}

  template <class Got>
  void require(bool holds, std::string_view name, const Got& got, std::string_view want) const {
    if (holds) return;
    throw ModelError(
        concat(subject_, ": ", name, " is not one that runs (got ", got, ", want ", want, ")"));
  }

  // A count of at least 1.
  void count(std::string_view name, uint32_t got, uint32_t most) const {
    require(got >= 1 && got <= most, name, got, concat("1 to ", most));
  }

  // A width that rows of qblocks and float4 loads fill.
  void width(std::string_view name, uint64_t got) const {
    require(got >= 1 && got <= kMaxWidth && got % kWidthStep == 0, name, got,
            concat("a multiple of ", kWidthStep, ", at most ", kMaxWidth));
  }

 private:
  const std::string& subject_;
};

void check_attention(const ModelConfig& config, const Checker& check) {
  check.count("number of attention heads", config.n_heads, kMaxWidth);
  check.count("number of K/V heads", config.n_kv_heads, kMaxWidth);
  const uint32_t group = config.n_heads / config.n_kv_heads;
  check.require(config.n_heads % config.n_kv_heads == 0 && group <= kMaxHeadGroup,
                "number of attention heads", config.n_heads,
                concat("1 to ", kMaxHeadGroup, " times the ", config.n_kv_heads, " K/V heads"));
  check.require(
      config.head_dim % kWidthStep == 0 && config.head_dim <= kMaxHeadDim && config.head_dim > 0,
      "head_dim", config.head_dim, concat("a multiple of ", kWidthStep, ", at most ", kMaxHeadDim));
  check.width("heads times head_dim", uint64_t{config.n_heads} * config.head_dim);
  const uint32_t rotary = config.rotary_dim;
  check.require(rotary > 0 && rotary % 2 == 0 && rotary <= config.head_dim, "rotary dimensions",
                rotary, concat("an even number, 2 to head_dim ", config.head_dim));
  check.require(std::isfinite(config.rope_theta) && config.rope_theta > 1.0 &&
                    config.rope_theta <= 1e12,
                "rope theta", config.rope_theta, "more than 1, at most 1e12");
}

void check_gdn(const ModelConfig& config, const Checker& check) {
  check.count("number of linear key heads", config.gdn_k_heads, kMaxWidth);
  check.count("number of linear value heads", config.gdn_v_heads, kMaxWidth);
  check.require(config.gdn_v_heads % config.gdn_k_heads == 0, "number of linear value heads",
                config.gdn_v_heads, concat("a multiple of the ", config.gdn_k_heads, " key heads"));
  check.require(config.gdn_head_dim == 64 || config.gdn_head_dim == 128, "linear head dimension",
                config.gdn_head_dim, "64 or 128");
  const uint64_t heads = uint64_t{2} * config.gdn_k_heads + config.gdn_v_heads;
  check.width("linear attention channels", heads * config.gdn_head_dim);
}

}  // namespace

uint32_t ModelConfig::n_layers(LayerKind kind) const {
  return static_cast<uint32_t>(std::count(layers.begin(), layers.end(), kind));
}

void validate(const ModelConfig& config, const std::string& subject) {
  const Checker check(subject);
  check.width("hidden size", config.hidden);
  check.width("intermediate size", config.intermediate);
  check.count("vocabulary size", config.vocab, kMaxVocab);
  check.require(config.n_valid_tokens >= 1 && config.n_valid_tokens <= config.vocab,
                "number of tokens", config.n_valid_tokens, concat("1 to ", config.vocab));
  check.count("context length", config.max_context, kMaxContext);
  check.require(config.eps > 0.0F && config.eps < 0.1F, "RMS norm epsilon", config.eps,
                "more than 0, less than 0.1");
  check.require(!config.layers.empty() && config.layers.size() <= kMaxLayers, "number of layers",
                config.layers.size(), concat("1 to ", kMaxLayers));
  check_attention(config, check);
  check_gdn(config, check);
  for (const int32_t id : config.eos_ids) {
    check.require(id >= 0 && static_cast<uint32_t>(id) < config.vocab, "end-of-sequence id", id,
                  concat("0 to ", config.vocab - 1));
  }
}

}  // namespace mtlqwen
