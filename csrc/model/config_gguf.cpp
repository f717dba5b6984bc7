// ModelConfig from the metadata of a GGUF file of architecture qwen35.
#include <limits>
#include <utility>

#include "base/error.hpp"
#include "io/utf8.hpp"
#include "model/config.hpp"
#include "model/special_tokens.hpp"

namespace mtlqwen {
namespace {

constexpr uint32_t kDefaultInterval = 4;  // llama.cpp's, where neither key tells the layer kinds
constexpr uint32_t kMaxBlocks = 1024;
constexpr int64_t kUnusedToken = 5;

class GgufConfig {
 public:
  explicit GgufConfig(const GgufFile& file)
      : file_(file), data_(file.metadata),
        subject_(concat("[gguf] ", file.weights.file.path().string())) {}

  void check_architecture() const;
  void check_features() const;
  [[nodiscard]] ModelConfig shapes() const;
  [[nodiscard]] std::vector<int32_t> eos_ids() const;
  [[nodiscard]] const std::string& subject() const { return subject_; }

 private:
  [[nodiscard]] std::vector<LayerKind> layers(uint32_t mtp_layers) const;
  [[nodiscard]] uint32_t vocab() const;
  [[nodiscard]] uint32_t n_valid_tokens(uint32_t vocab) const;

  [[nodiscard]] uint32_t u32(std::string_view name) const { return data_.get_u32(key(name)); }
  [[nodiscard]] static std::string key(std::string_view name) { return concat("qwen35.", name); }
  template <class Got>
  [[noreturn]] void fail(std::string_view name, const Got& got, const std::string& want) const {
    throw ModelError(
        concat(subject_, ": ", name, " is not one that runs (got ", got, ", want ", want, ")"));
  }

  const GgufFile& file_;
  const GgufMetadata& data_;
  std::string subject_;
};

void GgufConfig::check_architecture() const {
  const std::string& name = data_.get_string("general.architecture");
  if (name == "qwen35") return;
  if (name == "dflash") {
    throw ModelError(concat(subject_, ": is a drafter (got \"dflash\", want qwen35); name its ",
                            "model, and this file as drafter="));
  }
  throw ModelError(concat(subject_, ": architecture is not one that runs (got \"", printable(name),
                          "\", want qwen35); mtlqwen runs the dense Qwen 3.5, 3.6 and 3.8 models"));
}

void GgufConfig::check_features() const {
  const std::string* scaling = data_.find_string(key("rope.scaling.type"));
  if (scaling != nullptr && *scaling != "none") {
    fail("rope.scaling.type", printable(*scaling), "none");
  }
  if (u32("attention.key_length") != u32("attention.value_length")) {
    fail("attention.value_length", u32("attention.value_length"), "attention.key_length's value");
  }
  if (u32("ssm.conv_kernel") != kConvTaps) {
    fail("ssm.conv_kernel", u32("ssm.conv_kernel"), concat(kConvTaps));
  }
  const uint64_t inner = uint64_t{u32("ssm.time_step_rank")} * u32("ssm.state_size");
  if (u32("ssm.inner_size") != inner) {
    fail("ssm.inner_size", u32("ssm.inner_size"), concat("time_step_rank x state_size = ", inner));
  }
}

std::vector<LayerKind> GgufConfig::layers(uint32_t mtp_layers) const {
  const uint32_t blocks = u32("block_count");
  if (blocks > kMaxBlocks || blocks <= mtp_layers) {
    fail("block_count", blocks,
         concat("1 to ", kMaxBlocks, ", more than the ", mtp_layers, " MTP layers"));
  }
  const uint32_t count = blocks - mtp_layers;
  std::vector<LayerKind> out(count, LayerKind::kGdn);
  const std::vector<bool>* recurrent = data_.find_bools(key("attention.recurrent_layers"));
  if (recurrent != nullptr && recurrent->size() != blocks && recurrent->size() != count) {
    fail("attention.recurrent_layers", concat(recurrent->size(), " values"), concat(blocks));
  }
  const uint32_t interval =
      data_.find_u32(key("full_attention_interval")).value_or(kDefaultInterval);
  if (interval == 0) fail("full_attention_interval", interval, "1 or more");
  for (uint32_t i = 0; i < count; ++i) {
    const bool attention = recurrent != nullptr ? !(*recurrent)[i] : (i + 1) % interval == 0;
    if (attention) out[i] = LayerKind::kAttention;
  }
  return out;
}

uint32_t GgufConfig::vocab() const {
  const TensorInfo* table = file_.find("token_embd.weight");
  if (table == nullptr) {
    const auto* tokens = data_.find_strings("tokenizer.ggml.tokens");
    return tokens == nullptr ? 0 : static_cast<uint32_t>(tokens->size());
  }
  const uint64_t rows = table->shape.front();
  if (rows > std::numeric_limits<uint32_t>::max()) fail("token_embd.weight", rows, "fewer rows");
  return static_cast<uint32_t>(rows);
}

// Padding at the end of the vocabulary is marked unused.
uint32_t GgufConfig::n_valid_tokens(uint32_t vocab) const {
  const auto types = data_.find_integers("tokenizer.ggml.token_type");
  if (!types || types->size() != vocab) return vocab;
  uint32_t count = vocab;
  while (count > 1 && (*types)[count - 1] == kUnusedToken) --count;
  return count;
}

ModelConfig GgufConfig::shapes() const {
  ModelConfig out;
  out.architecture = data_.get_string("general.architecture");
  out.hidden = u32("embedding_length");
  out.intermediate = u32("feed_forward_length");
  out.vocab = vocab();
  out.n_valid_tokens = n_valid_tokens(out.vocab);
  out.max_context = u32("context_length");
  out.eps = data_.get_f32(key("attention.layer_norm_rms_epsilon"));
  out.mtp_layers = data_.find_u32(key("nextn_predict_layers")).value_or(0);
  out.layers = layers(out.mtp_layers);
  out.n_heads = u32("attention.head_count");
  out.n_kv_heads = u32("attention.head_count_kv");
  out.head_dim = u32("attention.key_length");
  out.rotary_dim = u32("rope.dimension_count");
  out.rope_theta = static_cast<double>(data_.get_f32(key("rope.freq_base")));
  out.gdn_k_heads = u32("ssm.group_count");
  out.gdn_v_heads = u32("ssm.time_step_rank");
  out.gdn_head_dim = u32("ssm.state_size");
  out.k_head_tiled = true;
  return out;
}

std::vector<int32_t> GgufConfig::eos_ids() const {
  std::vector<int32_t> ids;
  for (const std::string_view name : {"eos_token_id", "eot_token_id"}) {
    const auto id = data_.find_u32(concat("tokenizer.ggml.", name));
    if (id && std::in_range<int32_t>(*id)) add_id(static_cast<int32_t>(*id), ids);
  }
  const auto* tokens = data_.find_strings("tokenizer.ggml.tokens");
  if (tokens == nullptr) return ids;
  for (size_t i = 0; i < tokens->size(); ++i) {
    if (is_end_token((*tokens)[i])) add_id(static_cast<int32_t>(i), ids);
  }
  return ids;
}

}  // namespace

ModelConfig read_gguf_config(const GgufFile& file, bool has_head) {
  const GgufConfig config(file);
  config.check_architecture();
  config.check_features();
  ModelConfig out = config.shapes();
  out.tied = !has_head;
  out.eos_ids = config.eos_ids();
  validate(out, config.subject());
  return out;
}

}  // namespace mtlqwen
