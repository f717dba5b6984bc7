#include "model/tensor_names.hpp"

#include <array>
#include <utility>

#include "base/error.hpp"

namespace mtlqwen {
namespace {

struct Row {
  std::string_view name;
  std::string_view gguf;
  Stored stored = Stored::kPlain;
};

constexpr std::array kGlobalRows = {
    Row{"embed_tokens.weight", "token_embd.weight"},
    Row{"norm.weight", "output_norm.weight", Stored::kLessOne},
    Row{"lm_head.weight", "output.weight"},
};

constexpr std::array kMtpRows = {
    Row{"fc.weight", "eh_proj.weight"},
    Row{"pre_fc_norm_embedding.weight", "enorm.weight", Stored::kLessOne},
    Row{"pre_fc_norm_hidden.weight", "hnorm.weight", Stored::kLessOne},
    Row{"norm.weight", "shared_head_norm.weight", Stored::kLessOne},
};

constexpr std::array kDflashRows = {
    Row{"fc.weight", "fc.weight"},
    Row{"hidden_norm.weight", "enc.output_norm.weight"},
    Row{"norm.weight", "output_norm.weight"},
};

constexpr std::array kLayerRows = {
    Row{"input_layernorm.weight", "attn_norm.weight", Stored::kLessOne},
    Row{"post_attention_layernorm.weight", "post_attention_norm.weight", Stored::kLessOne},
    Row{"self_attn.q_proj.weight", "attn_q.weight"},
    Row{"self_attn.k_proj.weight", "attn_k.weight"},
    Row{"self_attn.v_proj.weight", "attn_v.weight"},
    Row{"self_attn.o_proj.weight", "attn_output.weight"},
    Row{"self_attn.q_norm.weight", "attn_q_norm.weight", Stored::kLessOne},
    Row{"self_attn.k_norm.weight", "attn_k_norm.weight", Stored::kLessOne},
    Row{"linear_attn.in_proj_qkv.weight", "attn_qkv.weight"},
    Row{"linear_attn.in_proj_z.weight", "attn_gate.weight"},
    Row{"linear_attn.in_proj_a.weight", "ssm_alpha.weight"},
    Row{"linear_attn.in_proj_b.weight", "ssm_beta.weight"},
    Row{"linear_attn.conv1d.weight", "ssm_conv1d.weight"},
    Row{"linear_attn.A_log", "ssm_a", Stored::kLogOfDecay},
    Row{"linear_attn.dt_bias", "ssm_dt.bias"},
    Row{"linear_attn.norm.weight", "ssm_norm.weight"},
    Row{"linear_attn.out_proj.weight", "ssm_out.weight"},
    Row{"mlp.gate_proj.weight", "ffn_gate.weight"},
    Row{"mlp.up_proj.weight", "ffn_up.weight"},
    Row{"mlp.down_proj.weight", "ffn_down.weight"},
};

template <size_t kCount>
const Row* find(const std::array<Row, kCount>& rows, std::string_view name) {
  for (const Row& row : rows) {
    if (row.name == name) return &row;
  }
  return nullptr;
}

constexpr std::string_view kLayers = "layers.";
constexpr std::string_view kMtp = "mtp.";

[[noreturn]] void fail(std::string_view name) {
  throw ModelError(concat("[weights] ", name, ": not a tensor of this architecture"));
}

// "layers.3.mlp.up_proj.weight" -> 3 as text, and the row of the rest.
std::pair<std::string_view, const Row*> find_in_layer(std::string_view name) {
  if (!name.starts_with(kLayers)) fail(name);
  const std::string_view rest = name.substr(kLayers.size());
  const size_t dot = rest.find('.');
  const Row* row = dot == rest.npos ? nullptr : find(kLayerRows, rest.substr(dot + 1));
  if (row == nullptr) fail(name);
  return {rest.substr(0, dot), row};
}

void add_mlp(std::vector<TensorSpec>& out, uint64_t hidden, uint64_t intermediate,
             const std::string& layer) {
  out.push_back({layer + "post_attention_layernorm.weight", {hidden}});
  out.push_back({layer + "mlp.gate_proj.weight", {intermediate, hidden}});
  out.push_back({layer + "mlp.up_proj.weight", {intermediate, hidden}});
  out.push_back({layer + "mlp.down_proj.weight", {hidden, intermediate}});
}

// Of either config. A target's rows of q_proj are, per head, query, then gate.
template <class Config>
void add_attention(std::vector<TensorSpec>& out, const Config& c, const std::string& layer,
                   bool gated) {
  const uint64_t heads = uint64_t{c.n_heads} * c.head_dim;
  const uint64_t kv_heads = uint64_t{c.n_kv_heads} * c.head_dim;
  const std::string prefix = layer + "self_attn.";
  out.push_back({prefix + "q_proj.weight", {gated ? 2 * heads : heads, c.hidden}});
  out.push_back({prefix + "k_proj.weight", {kv_heads, c.hidden}});
  out.push_back({prefix + "v_proj.weight", {kv_heads, c.hidden}});
  out.push_back({prefix + "q_norm.weight", {c.head_dim}});
  out.push_back({prefix + "k_norm.weight", {c.head_dim}});
  out.push_back({prefix + "o_proj.weight", {c.hidden, heads}});
}

void add_gdn(std::vector<TensorSpec>& out, const ModelConfig& c, const std::string& layer) {
  const uint64_t values = uint64_t{c.gdn_v_heads} * c.gdn_head_dim;
  const std::string prefix = layer + "linear_attn.";
  out.push_back({prefix + "in_proj_qkv.weight", {c.gdn_channels(), c.hidden}});
  out.push_back({prefix + "in_proj_z.weight", {values, c.hidden}});
  out.push_back({prefix + "in_proj_a.weight", {c.gdn_v_heads, c.hidden}});
  out.push_back({prefix + "in_proj_b.weight", {c.gdn_v_heads, c.hidden}});
  out.push_back({prefix + "conv1d.weight", {uint64_t{c.gdn_channels()} * kConvTaps}});
  out.push_back({prefix + "A_log", {c.gdn_v_heads}});
  out.push_back({prefix + "dt_bias", {c.gdn_v_heads}});
  out.push_back({prefix + "norm.weight", {c.gdn_head_dim}});
  out.push_back({prefix + "out_proj.weight", {c.hidden, values}});
}

}  // namespace

TensorName tensor_name(std::string_view name, size_t n_layers) {
  if (const Row* row = find(kGlobalRows, name)) return {std::string(row->gguf), row->stored};
  if (!name.starts_with(kMtp)) {
    const auto [layer, row] = find_in_layer(name);
    return {concat("blk.", layer, ".", row->gguf), row->stored};
  }
  const std::string_view rest = name.substr(kMtp.size());
  if (const Row* row = find(kMtpRows, rest)) {
    return {concat("blk.", n_layers, ".nextn.", row->gguf), row->stored};
  }
  const Row* row = find_in_layer(rest).second;
  return {concat("blk.", n_layers, ".", row->gguf), row->stored};
}

TensorName dflash_tensor_name(std::string_view name) {
  if (const Row* row = find(kDflashRows, name)) return {.gguf = std::string(row->gguf)};
  const auto [layer, row] = find_in_layer(name);
  const bool mlp_norm = row->name == "post_attention_layernorm.weight";
  return {.gguf = concat("blk.", layer, ".", mlp_norm ? "ffn_norm.weight" : row->gguf)};
}

std::vector<TensorSpec> tensor_specs(const ModelConfig& c) {
  std::vector<TensorSpec> out;
  out.push_back({"embed_tokens.weight", {c.vocab, c.hidden}});
  for (size_t i = 0; i < c.layers.size(); ++i) {
    const std::string layer = concat(kLayers, i, ".");
    out.push_back({layer + "input_layernorm.weight", {c.hidden}});
    if (c.layers[i] == LayerKind::kAttention) {
      add_attention(out, c, layer, true);
    } else {
      add_gdn(out, c, layer);
    }
    add_mlp(out, c.hidden, c.intermediate, layer);
  }
  out.push_back({"norm.weight", {c.hidden}});
  if (!c.tied) out.push_back({"lm_head.weight", {c.vocab, c.hidden}});
  return out;
}

std::vector<TensorSpec> mtp_tensor_specs(const ModelConfig& c) {
  std::vector<TensorSpec> out;
  out.push_back({"mtp.pre_fc_norm_embedding.weight", {c.hidden}});
  out.push_back({"mtp.pre_fc_norm_hidden.weight", {c.hidden}});
  out.push_back({"mtp.fc.weight", {c.hidden, 2 * uint64_t{c.hidden}}});
  out.push_back({"mtp.layers.0.input_layernorm.weight", {c.hidden}});
  add_attention(out, c, "mtp.layers.0.", true);
  add_mlp(out, c.hidden, c.intermediate, "mtp.layers.0.");
  out.push_back({"mtp.norm.weight", {c.hidden}});
  return out;
}

std::vector<TensorSpec> tensor_specs(const DflashConfig& c) {
  std::vector<TensorSpec> out;
  out.push_back({"fc.weight", {c.hidden, c.taps.size() * c.hidden}});
  out.push_back({"hidden_norm.weight", {c.hidden}});
  for (size_t i = 0; i < c.layers.size(); ++i) {
    const std::string layer = concat(kLayers, i, ".");
    out.push_back({layer + "input_layernorm.weight", {c.hidden}});
    add_attention(out, c, layer, false);
    add_mlp(out, c.hidden, c.intermediate, layer);
  }
  out.push_back({"norm.weight", {c.hidden}});
  return out;
}

}  // namespace mtlqwen
