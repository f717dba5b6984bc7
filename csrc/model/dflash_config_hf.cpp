// DflashConfig from the config.json of a Hugging Face checkpoint directory. Fields moved between
// the top level, dflash_config and rope_parameters as drafters were replaced; any place is read.
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "io/json.hpp"
#include "io/utf8.hpp"
#include "model/config_fields.hpp"
#include "model/dflash_config.hpp"

namespace mtlqwen {
namespace {

constexpr uint32_t kMaxLayerCount = 1024;
constexpr uint32_t kLeastTargetLayers = 5;  // the default taps are layers 1 to n - 3

class HfDflashConfig : public ConfigFields {
 public:
  HfDflashConfig(const JsonValue& top, std::string subject)
      : HfDflashConfig(top, top.find("dflash_config"), std::move(subject)) {}

  void check_kind() const;
  [[nodiscard]] DflashConfig shapes() const;

 private:
  HfDflashConfig(const JsonValue& top, const JsonValue* own, std::string subject)
      : ConfigFields({own == nullptr ? &top : own, &top}, std::move(subject)),
        is_drafter_(own != nullptr) {}

  [[nodiscard]] std::string architecture() const;
  [[nodiscard]] std::vector<DflashLayer> layers() const;
  [[nodiscard]] std::vector<uint32_t> taps() const;
  [[nodiscard]] bool is_sliding(const JsonValue& type) const;

  bool is_drafter_;
};

std::string HfDflashConfig::architecture() const {
  const JsonValue* names = find("architectures");
  if (names == nullptr || names->array() == nullptr || names->array()->empty()) return "";
  const std::string* name = names->array()->front().string();
  return name == nullptr ? "" : *name;
}

void HfDflashConfig::check_kind() const {
  const std::string name = architecture();
  if (!is_drafter_ && !name.starts_with("DFlash")) {
    throw ModelError(concat(subject(), ": not a drafter that runs (got architecture \"",
                            printable(name), "\", want DFlashDraftModel); name a DFlash drafter"));
  }
  std::string found;
  for (const std::string_view key : kOtherDrafterKeys) {
    const JsonValue* value = find(key);
    if (value != nullptr && value->boolean() != false && value->unsigned_integer() != 0U) {
      found += concat(found.empty() ? "" : ", ", key);
    }
  }
  if (!found.empty()) fail_other_drafter(subject(), found);
}

bool HfDflashConfig::is_sliding(const JsonValue& type) const {
  const std::string text = type.string() == nullptr ? "" : *type.string();
  if (text != "sliding_attention" && text != "full_attention") {
    fail("layer_types", &type, "sliding_attention or full_attention");
  }
  return text == "sliding_attention";
}

std::vector<DflashLayer> HfDflashConfig::layers() const {
  const uint32_t count = u32("num_hidden_layers");
  if (count == 0 || count > kMaxLayerCount) {
    fail("num_hidden_layers", find("num_hidden_layers"), concat("1 to ", kMaxLayerCount));
  }
  const JsonValue* causal = find("is_causal");
  if (causal != nullptr && !causal->boolean()) fail("is_causal", causal, "true or false");
  const JsonValue* types = find("layer_types");
  if (types == nullptr && find("sliding_window") != nullptr) {
    fail("layer_types", types, "one for each layer, as there is a sliding_window");
  }
  if (types != nullptr && (types->array() == nullptr || types->array()->size() != count)) {
    fail("layer_types", types, concat("an array of num_hidden_layers = ", count));
  }
  std::vector<DflashLayer> out(count);
  for (uint32_t i = 0; i < count; ++i) {
    const bool sliding = types != nullptr && is_sliding((*types->array())[i]);
    if (sliding) {
      out[i].window = u32("sliding_window");
      if (out[i].window == 0) fail("sliding_window", find("sliding_window"), "1 or more");
    }
    out[i].causal = causal == nullptr ? sliding : *causal->boolean();
  }
  return out;
}

std::vector<uint32_t> HfDflashConfig::taps() const {
  const JsonValue* ids = find("target_layer_ids");
  if (ids == nullptr) {
    const uint32_t target_layers = u32("num_target_layers");
    if (target_layers < kLeastTargetLayers) {
      fail("num_target_layers", find("num_target_layers"),
           concat(kLeastTargetLayers, " or more, as there are no target_layer_ids"));
    }
    return default_taps(target_layers, u32("num_hidden_layers"));
  }
  if (ids->array() == nullptr) fail("target_layer_ids", ids, "an array of integers");
  std::vector<uint32_t> out;
  for (const JsonValue& id : *ids->array()) out.push_back(to_u32("target_layer_ids", &id));
  return out;
}

DflashConfig HfDflashConfig::shapes() const {
  DflashConfig out;
  out.hidden = u32("hidden_size");
  out.intermediate = u32("intermediate_size");
  out.vocab = u32_or("vocab_size", 0);
  out.eps = static_cast<float>(to_number("rms_norm_eps", find("rms_norm_eps")));
  out.layers = layers();
  out.n_heads = u32("num_attention_heads");
  out.n_kv_heads = u32("num_key_value_heads");
  out.head_dim = u32("head_dim");
  out.rope_theta = rope("rope_theta", std::nullopt);
  if (rope("partial_rotary_factor", 1.0) != 1.0) {
    fail("partial_rotary_factor", find_rope("partial_rotary_factor"), "1");
  }
  out.block_size = u32("block_size");
  out.mask_id = u32("mask_token_id");
  if (const JsonValue* scale = find("input_embedding_scale"); scale != nullptr) {
    out.embedding_scale = static_cast<float>(to_number("input_embedding_scale", scale));
  }
  out.taps = taps();
  out.taps_key = find("target_layer_ids") != nullptr
                     ? "target_layer_ids"
                     : "target_layer_ids, spread over num_target_layers";
  return out;
}

}  // namespace

DflashConfig read_dflash_hf_config(const std::filesystem::path& directory) {
  const std::filesystem::path path = directory / "config.json";
  const JsonValue json = read_json(path);
  const HfDflashConfig config(json, concat("[config] ", path.string()));
  config.check_kind();
  config.check_plain();
  DflashConfig out = config.shapes();
  validate(out, config.subject());
  return out;
}

}  // namespace mtlqwen
