// ModelConfig from the files of a Hugging Face checkpoint directory.
#include <cmath>
#include <limits>
#include <optional>
#include <string_view>
#include <utility>

#include "base/error.hpp"
#include "io/json.hpp"
#include "io/utf8.hpp"
#include "model/config.hpp"
#include "model/config_fields.hpp"
#include "model/special_tokens.hpp"

namespace mtlqwen {
namespace {

constexpr double kDefaultRotaryFactor = 0.25;  // transformers' value for this family
constexpr uint64_t kDefaultInterval = 4;       // every fourth layer is attention
constexpr uint64_t kMaxLayerCount = 1024;

// The text part of config.json first, then the whole of it for what multimodal files keep at the top.
class HfConfig : public ConfigFields {
 public:
  HfConfig(const JsonValue& top, std::string subject)
      : HfConfig(top, top.find("text_config"), std::move(subject)) {}

  void check_architecture() const;
  void check_features() const;
  [[nodiscard]] ModelConfig shapes() const;
  [[nodiscard]] std::optional<bool> tied() const;

 private:
  HfConfig(const JsonValue& top, const JsonValue* nested, std::string subject)
      : ConfigFields({nested == nullptr ? &top : nested, &top}, std::move(subject)), top_(top),
        text_(nested == nullptr ? &top : nested) {}

  [[nodiscard]] std::string model_type() const;
  [[nodiscard]] std::vector<LayerKind> layers() const;

  const JsonValue& top_;
  const JsonValue* text_;
};

std::string HfConfig::model_type() const {
  const JsonValue* type = text_->find("model_type");
  if (type == nullptr) type = top_.find("model_type");
  return type != nullptr && type->string() != nullptr ? *type->string() : "";
}

void HfConfig::check_architecture() const {
  const std::string type = model_type();
  if (type == "qwen3_5" || type == "qwen3_5_text") return;
  throw ModelError(concat(subject(), ": architecture is not one that runs (got model_type \"",
                          printable(type), "\", want qwen3_5 or qwen3_5_text); mtlqwen runs the ",
                          "dense Qwen 3.5, 3.6 and 3.8 models"));
}

void HfConfig::check_features() const {
  check_plain();
  check_flag("attn_output_gate", true);
  check_silu("output_gate_type");
  if (u32_or("linear_conv_kernel_dim", kConvTaps) != kConvTaps) {
    fail("linear_conv_kernel_dim", find("linear_conv_kernel_dim"), concat(kConvTaps));
  }
  if (u32("linear_key_head_dim") != u32("linear_value_head_dim")) {
    fail("linear_value_head_dim", find("linear_value_head_dim"), "linear_key_head_dim's value");
  }
}

std::vector<LayerKind> HfConfig::layers() const {
  const uint32_t count = u32("num_hidden_layers");
  if (count > kMaxLayerCount) {
    fail("num_hidden_layers", find("num_hidden_layers"), concat("at most ", kMaxLayerCount));
  }
  std::vector<LayerKind> out;
  const JsonValue* names = find("layer_types");
  if (names == nullptr) {
    const uint64_t interval = u32_or("full_attention_interval", kDefaultInterval);
    if (interval == 0)
      fail("full_attention_interval", find("full_attention_interval"), "1 or more");
    for (uint64_t i = 1; i <= count; ++i) {
      out.push_back(i % interval == 0 ? LayerKind::kAttention : LayerKind::kGdn);
    }
    return out;
  }
  if (names->array() == nullptr || names->array()->size() != count) {
    fail("layer_types", names, concat("an array of num_hidden_layers = ", count));
  }
  for (const JsonValue& name : *names->array()) {
    const std::string text = name.string() == nullptr ? "" : *name.string();
    if (text != "linear_attention" && text != "full_attention") {
      fail("layer_types", &name, "linear_attention or full_attention");
    }
    out.push_back(text == "full_attention" ? LayerKind::kAttention : LayerKind::kGdn);
  }
  return out;
}

ModelConfig HfConfig::shapes() const {
  ModelConfig out;
  out.architecture = model_type();
  out.hidden = u32("hidden_size");
  out.intermediate = u32("intermediate_size");
  out.vocab = u32("vocab_size");
  out.n_valid_tokens = out.vocab;
  out.max_context = u32("max_position_embeddings");
  out.eps = static_cast<float>(to_number("rms_norm_eps", find("rms_norm_eps")));
  out.layers = layers();
  out.n_heads = u32("num_attention_heads");
  out.n_kv_heads = u32("num_key_value_heads");
  out.head_dim = u32("head_dim");
  const double rotary = out.head_dim * rope("partial_rotary_factor", kDefaultRotaryFactor);
  if (!(rotary >= 0.0 && rotary <= out.head_dim)) {
    fail("partial_rotary_factor", find_rope("partial_rotary_factor"), "0 to 1");
  }
  out.rotary_dim = static_cast<uint32_t>(rotary);
  out.rope_theta = rope("rope_theta", std::nullopt);
  out.gdn_k_heads = u32("linear_num_key_heads");
  out.gdn_v_heads = u32("linear_num_value_heads");
  out.gdn_head_dim = u32("linear_value_head_dim");
  out.mtp_layers = u32_or("mtp_num_hidden_layers", 0);
  return out;
}

std::optional<bool> HfConfig::tied() const {
  for (const JsonValue* level : {&top_, text_}) {
    const JsonValue* value = level->find("tie_word_embeddings");
    if (value != nullptr && value->boolean()) return value->boolean();
  }
  return std::nullopt;
}

// A number, a list of numbers, or nothing.
void add_ids(const JsonValue* value, std::vector<int32_t>& ids) {
  if (value == nullptr) return;
  if (value->array() != nullptr) {
    for (const JsonValue& item : *value->array()) {
      if (item.array() == nullptr) add_ids(&item, ids);
    }
  } else if (const auto id = value->unsigned_integer(); id && std::in_range<int32_t>(*id)) {
    add_id(static_cast<int32_t>(*id), ids);
  }
}

// Some checkpoints name only <|endoftext|> in config.json; the end of a turn stands in the config
// of the tokenizer.
void add_named_ids(const JsonValue& tokenizer, std::vector<int32_t>& ids) {
  const JsonValue* added = tokenizer.find("added_tokens_decoder");
  if (added == nullptr || added->object() == nullptr) return;
  for (const JsonMember& entry : *added->object()) {
    const JsonValue* content = entry.value.find("content");
    const bool ends =
        content != nullptr && content->string() != nullptr && is_end_token(*content->string());
    const std::optional<int32_t> id = ends ? parse_id(entry.name) : std::nullopt;
    if (id) add_id(*id, ids);
  }
}

}  // namespace

ModelConfig read_hf_config(const std::filesystem::path& directory, bool has_head) {
  const std::filesystem::path path = directory / "config.json";
  const JsonValue json = read_json(path);
  const HfConfig config(json, concat("[config] ", path.string()));
  config.check_architecture();
  config.check_features();
  ModelConfig out = config.shapes();
  out.tied = config.tied().value_or(!has_head);
  add_ids(config.find("eos_token_id"), out.eos_ids);
  std::error_code ignored;
  if (const auto file = directory / "generation_config.json";
      std::filesystem::exists(file, ignored)) {
    add_ids(read_json(file).find("eos_token_id"), out.eos_ids);
  }
  if (const auto file = directory / "tokenizer_config.json";
      std::filesystem::exists(file, ignored)) {
    add_named_ids(read_json(file), out.eos_ids);
  }
  validate(out, config.subject());
  return out;
}

}  // namespace mtlqwen
