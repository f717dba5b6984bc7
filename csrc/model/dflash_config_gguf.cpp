// DflashConfig from the metadata of a GGUF file of architecture dflash.
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/error.hpp"
#include "io/utf8.hpp"
#include "model/dflash_config.hpp"

namespace mtlqwen {
namespace {

constexpr uint32_t kMaxBlocks = 1024;

class GgufDflashConfig {
 public:
  explicit GgufDflashConfig(const GgufFile& file)
      : data_(file.metadata), subject_(concat("[gguf] ", file.weights.file.path().string())) {}

  void check_kind() const;
  [[nodiscard]] DflashConfig shapes() const;
  [[nodiscard]] const std::string& subject() const { return subject_; }

 private:
  void check_features() const;
  [[nodiscard]] uint32_t vocab() const;
  [[nodiscard]] std::vector<DflashLayer> layers() const;
  [[nodiscard]] std::vector<uint32_t> taps() const;

  [[nodiscard]] uint32_t u32(std::string_view name) const { return data_.get_u32(key(name)); }
  [[nodiscard]] float f32(std::string_view name) const { return data_.get_f32(key(name)); }
  [[nodiscard]] static std::string key(std::string_view name) { return concat("dflash.", name); }
  template <class Got>
  [[noreturn]] void fail(std::string_view name, const Got& got, std::string_view want) const {
    throw ModelError(concat(subject_, ": ", key(name), " is not one that runs (got ", got,
                            ", want ", want, ")"));
  }

  const GgufMetadata& data_;
  std::string subject_;
};

void GgufDflashConfig::check_kind() const {
  const std::string& name = data_.get_string("general.architecture");
  if (name != "dflash") {
    throw ModelError(concat(subject_, ": not a drafter that runs (got architecture \"",
                            printable(name), "\", want dflash); name a DFlash drafter"));
  }
  std::string found;
  for (const std::string_view other : kOtherDrafterKeys) {
    const auto value = data_.values().find(key(other));
    if (value == data_.values().end()) continue;
    const auto* flag = std::get_if<bool>(&value->second.data);
    const auto* number = std::get_if<uint64_t>(&value->second.data);
    if ((flag != nullptr && !*flag) || (number != nullptr && *number == 0)) continue;
    found += concat(found.empty() ? "" : ", ", key(other));
  }
  if (!found.empty()) fail_other_drafter(subject_, found);
}

void GgufDflashConfig::check_features() const {
  const std::string* scaling = data_.find_string(key("rope.scaling.type"));
  if (scaling != nullptr && *scaling != "none") {
    fail("rope.scaling.type", printable(*scaling), "none");
  }
  const uint32_t head_dim = u32("attention.key_length");
  if (u32("attention.value_length") != head_dim) {
    fail("attention.value_length", u32("attention.value_length"), "attention.key_length's value");
  }
  if (data_.find_u32(key("rope.dimension_count")).value_or(head_dim) != head_dim) {
    fail("rope.dimension_count", u32("rope.dimension_count"), "attention.key_length's value");
  }
}

// Most files name no size, but carry the target's tokens.
uint32_t GgufDflashConfig::vocab() const {
  if (const auto size = data_.find_u32(key("vocab_size"))) return *size;
  const auto* tokens = data_.find_strings("tokenizer.ggml.tokens");
  return tokens == nullptr ? 0 : static_cast<uint32_t>(tokens->size());
}

std::vector<DflashLayer> GgufDflashConfig::layers() const {
  const uint32_t count = u32("block_count");
  if (count == 0 || count > kMaxBlocks) fail("block_count", count, concat("1 to ", kMaxBlocks));
  const uint32_t window = data_.find_u32(key("attention.sliding_window")).value_or(0);
  const std::vector<bool>* pattern = data_.find_bools(key("attention.sliding_window_pattern"));
  if (window != 0 && (pattern == nullptr || pattern->size() != count)) {
    fail("attention.sliding_window_pattern",
         pattern == nullptr ? "nothing" : concat(pattern->size(), " values"), concat(count));
  }
  const std::optional<bool> causal = data_.find_bool(key("attention.causal"));
  std::vector<DflashLayer> out(count);
  for (uint32_t i = 0; i < count; ++i) {
    const bool sliding = window != 0 && (*pattern)[i];
    out[i] = {.window = sliding ? window : 0, .causal = causal.value_or(sliding)};
  }
  return out;
}

// llama.cpp counts the inputs of layers, of which layer i's output is number i + 1.
std::vector<uint32_t> GgufDflashConfig::taps() const {
  const auto ids = data_.find_integers(key("target_layers"));
  if (!ids) fail("target_layers", "nothing", "an array of integers");
  std::vector<uint32_t> out;
  for (const int64_t id : *ids) {
    if (id < 1 || id > std::numeric_limits<uint32_t>::max()) {
      fail("target_layers", id, "1 or more, as the first layer's output is 1");
    }
    out.push_back(static_cast<uint32_t>(id - 1));
  }
  return out;
}

DflashConfig GgufDflashConfig::shapes() const {
  check_features();
  DflashConfig out;
  out.hidden = u32("embedding_length");
  out.intermediate = u32("feed_forward_length");
  out.vocab = vocab();
  out.eps = f32("attention.layer_norm_rms_epsilon");
  out.layers = layers();
  out.n_heads = u32("attention.head_count");
  out.n_kv_heads = u32("attention.head_count_kv");
  out.head_dim = u32("attention.key_length");
  out.rope_theta = static_cast<double>(f32("rope.freq_base"));
  out.block_size = u32("block_size");
  out.mask_id = data_.get_u32("tokenizer.ggml.mask_token_id");
  out.embedding_scale = data_.find_f32(key("embedding_scale")).value_or(1.0F);
  out.taps = taps();
  out.taps_key = "dflash.target_layers";
  out.first_tap = 1;
  return out;
}

}  // namespace

DflashConfig read_dflash_gguf_config(const GgufFile& file) {
  const GgufDflashConfig config(file);
  config.check_kind();
  DflashConfig out = config.shapes();
  validate(out, config.subject());
  return out;
}

}  // namespace mtlqwen
