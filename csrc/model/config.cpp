#include "model/config.hpp"

#include <algorithm>

#include "model/config_checker.hpp"

namespace mtlqwen {
namespace {

void check_rope(const ModelConfig& config, const ConfigChecker& check) {
  const uint32_t rotary = config.rotary_dim;
  check.rope_theta(config.rope_theta);
  check.require(rotary > 0 && rotary % 2 == 0 && rotary <= config.head_dim, "rotary dimensions",
                rotary, concat("an even number, 2 to head_dim ", config.head_dim));
}

void check_gdn(const ModelConfig& config, const ConfigChecker& check) {
  check.count("number of linear key heads", config.gdn_k_heads, ConfigChecker::kMaxWidth);
  check.count("number of linear value heads", config.gdn_v_heads, ConfigChecker::kMaxWidth);
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
  const ConfigChecker check(subject);
  check.width("hidden size", config.hidden);
  check.width("intermediate size", config.intermediate);
  check.count("vocabulary size", config.vocab, ConfigChecker::kMaxVocab);
  check.require(config.n_valid_tokens >= 1 && config.n_valid_tokens <= config.vocab,
                "number of tokens", config.n_valid_tokens, concat("1 to ", config.vocab));
  check.count("context length", config.max_context, ConfigChecker::kMaxContext);
  check.epsilon(config.eps);
  check.require(!config.layers.empty() && config.layers.size() <= ConfigChecker::kMaxLayers,
                "number of layers", config.layers.size(),
                concat("1 to ", ConfigChecker::kMaxLayers));
  check.heads(config.n_heads, config.n_kv_heads, config.head_dim);
  check_rope(config, check);
  check_gdn(config, check);
  for (const int32_t id : config.eos_ids) {
    check.require(id >= 0 && static_cast<uint32_t>(id) < config.vocab, "end-of-sequence id", id,
                  concat("0 to ", config.vocab - 1));
  }
}

}  // namespace mtlqwen
