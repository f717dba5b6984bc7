#include "model/weights.hpp"

#include <array>
#include <utility>

#include "base/error.hpp"
#include "io/safetensors.hpp"
#include "model/tensor_names.hpp"

namespace mtlqwen {

Weights::Weights(const std::filesystem::path& path) : TensorFiles(path) {
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored)) {
    open_directory(path);
  } else {
    open_gguf(path);
  }
  check(tensor_specs(config_));
  find_mtp();
}

void Weights::open_gguf(const std::filesystem::path& path) {
  if (path.extension() == ".safetensors") {
    throw ModelError(concat("[weights] ", path.string(), ": a safetensors file alone has no ",
                            "config; name the directory that holds it and config.json"));
  }
  GgufFile file = read_gguf(path);
  head_name_ = "output.weight";
  config_ = read_gguf_config(file, file.has(head_name_));
  metadata_ = std::move(file.metadata);
  add_gguf(std::move(file));
}

void Weights::open_directory(const std::filesystem::path& path) {
  std::error_code ignored;
  if (!std::filesystem::exists(path / "config.json", ignored)) {
    throw FormatError(concat("[weights] ", path.string(), ": directory has no config.json; name a ",
                             "checkpoint directory, or a .gguf file itself"));
  }
  // Without the weights: an architecture that does not run is to be named before a missing shard
  // is.
  static_cast<void>(read_hf_config(path, false));
  add_safetensors(read_safetensors_directory(path));
  prefix_ = find_prefix();
  mtp_prefix_ = find_mtp_prefix();
  for (const std::string_view outer : {"", "language_model.", "model."}) {
    head_name_ = concat(outer, "lm_head.weight");
    if (has(head_name_)) break;
  }
  config_ = read_hf_config(path, has(head_name_));
}

// Multimodal checkpoints, text checkpoints and conversions differ in it.
std::string Weights::find_prefix() const {
  static constexpr std::array<std::string_view, 4> kPrefixes = {
      "model.language_model.", "language_model.model.", "model.", ""};
  for (const std::string_view prefix : kPrefixes) {
    if (has(concat(prefix, "embed_tokens.weight"))) return std::string(prefix);
  }
  throw ModelError(concat("[weights] ", path().string(), ": tensor embed_tokens.weight is missing ",
                          "under every known prefix; the checkpoint is not complete"));
}

// Of the head, whatever the prefix of the layers is.
std::string Weights::find_mtp_prefix() const {
  static constexpr std::array<std::string_view, 2> kPrefixes = {"model.", "language_model."};
  for (const std::string_view prefix : kPrefixes) {
    if (has(concat(prefix, "mtp.fc.weight"))) return std::string(prefix);
  }
  return "";
}

// A head that lacks something is no head: whoever wants it asks for the reason.
void Weights::find_mtp() {
  if (config_.mtp_layers > 1) {
    mtp_problem_ = concat("[weights] ", path().string(), ": number of MTP layers is not one that ",
                          "runs (got ", config_.mtp_layers, ", want 1)");
    return;
  }
  try {
    check(mtp_tensor_specs(config_));
  } catch (const ModelError& error) {
    mtp_problem_ = error.what();
  }
}

TensorFiles::Spelling Weights::spelling(std::string_view name) const {
  const TensorName found = tensor_name(name, config_.layers.size());
  if (is_gguf()) return {.name = found.gguf, .stored = Stored::kPlain};
  if (name == "lm_head.weight") return {.name = head_name_, .stored = found.stored};
  const std::string& prefix = name.starts_with("mtp.") ? mtp_prefix_ : prefix_;
  return {.name = concat(prefix, name), .stored = found.stored};
}

}  // namespace mtlqwen
