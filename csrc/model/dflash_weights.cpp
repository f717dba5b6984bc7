#include "model/dflash_weights.hpp"

#include <algorithm>
#include <set>
#include <utility>

#include "base/error.hpp"
#include "io/gguf.hpp"
#include "io/safetensors.hpp"
#include "io/utf8.hpp"

namespace mtlqwen {
namespace {

constexpr size_t kMaxNamed = 4;  // tensors in a message

}  // namespace

DflashWeights::DflashWeights(const std::filesystem::path& path, const ModelConfig& target)
    : TensorFiles(path) {
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored)) {
    open_directory(path);
  } else {
    GgufFile file = read_gguf(path);
    config_ = read_dflash_gguf_config(file);
    add_gguf(std::move(file));
  }
  check_kind();
  check_target(config_, target, concat("[drafter] ", path.string()));
  check(tensor_specs(config_));
}

void DflashWeights::open_directory(const std::filesystem::path& path) {
  std::error_code ignored;
  if (!std::filesystem::exists(path / "config.json", ignored)) {
    throw FormatError(concat("[drafter] ", path.string(), ": directory has no config.json; name a ",
                             "checkpoint directory, or a .gguf file itself"));
  }
  config_ = read_dflash_hf_config(path);
  add_safetensors(read_safetensors_directory(path));
}

// A tensor that DFlash does not have belongs to a drafter that computes something else. Copies of
// the target's embedding and head do no harm.
void DflashWeights::check_kind() const {
  std::set<std::string> known = {"token_embd.weight", "output.weight", "embed_tokens.weight",
                                 "lm_head.weight"};
  for (const TensorSpec& spec : tensor_specs(config_)) known.insert(spelling(spec.name).name);
  std::set<std::string> others;
  for (const WeightFile& file : files()) {
    for (const auto& [name, tensor] : file.tensors) others.insert(name);
    for (const auto& [name, tensor] : file.unsupported) others.insert(name);
  }
  std::erase_if(others, [&](const std::string& name) { return known.contains(name); });
  if (others.empty()) return;
  std::string found;
  size_t named = 0;
  for (const std::string& name : others) {
    if (named++ == kMaxNamed) break;
    found += concat(found.empty() ? "" : ", ", printable(name));
  }
  if (others.size() > kMaxNamed) found += concat(" and ", others.size() - kMaxNamed, " others");
  fail_other_drafter(concat("[drafter] ", path().string()), found);
}

TensorFiles::Spelling DflashWeights::spelling(std::string_view name) const {
  return {.name = is_gguf() ? dflash_tensor_name(name).gguf : std::string(name),
          .stored = Stored::kPlain};
}

}  // namespace mtlqwen
