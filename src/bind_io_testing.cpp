// _core._testing: what the file readers make of a file, for tests/io.
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <string>
#include <vector>

#include "bind.hpp"
#include "io/gguf.hpp"
#include "io/safetensors.hpp"
#include "model/dflash_config.hpp"
#include "model/dflash_weights.hpp"
#include "model/fingerprint.hpp"
#include "model/tensor_names.hpp"
#include "model/weights.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace mtlqwen {
namespace {

nb::dict to_dict(const WeightFile& file) {
  nb::dict tensors;
  for (const auto& [name, tensor] : file.tensors) {
    nb::dict entry;
    entry["format"] = std::string(info(tensor.format).name);
    entry["shape"] = tensor.shape;
    entry["offset"] = tensor.offset;
    entry["bytes"] = tensor.bytes;
    tensors[name.c_str()] = entry;
  }
  nb::dict unsupported;
  for (const auto& [name, tensor] : file.unsupported) unsupported[name.c_str()] = tensor.format;
  nb::dict result;
  result["path"] = file.file.path().string();
  result["tensors"] = tensors;
  result["unsupported"] = unsupported;
  return result;
}

nb::dict open_gguf(const std::string& path) { return to_dict(read_gguf(path).weights); }

nb::list open_safetensors(const std::string& path) {
  nb::list files;
  if (std::filesystem::is_directory(path)) {
    for (const WeightFile& file : read_safetensors_directory(path)) files.append(to_dict(file));
  } else {
    files.append(to_dict(read_safetensors(path)));
  }
  return files;
}

nb::dict model_config(const std::string& path) { return to_dict(Weights(path).config()); }

// Vectors by value, matrices by place.
void add_tensors(nb::dict& result, const TensorFiles& files, const std::vector<TensorSpec>& specs) {
  for (const TensorSpec& spec : specs) {
    if (spec.shape.size() == 1) {
      result[spec.name.c_str()] = files.vector(spec.name, spec.shape[0]);
      continue;
    }
    const MatrixRef matrix = files.matrix(spec.name, spec.shape[0], spec.shape[1]);
    nb::dict entry;
    entry["path"] = files.file(matrix.file).path().string();
    entry["offset"] = matrix.offset;
    entry["format"] = std::string(info(matrix.format).name);
    entry["shape"] = spec.shape;
    result[spec.name.c_str()] = entry;
  }
}

nb::dict weights_check(const std::string& path) {
  const Weights weights(path);
  nb::dict result;
  add_tensors(result, weights, tensor_specs(weights.config()));
  if (weights.has_mtp()) add_tensors(result, weights, mtp_tensor_specs(weights.config()));
  return result;
}

std::string mtp_problem(const std::string& path) { return Weights(path).mtp_problem(); }

nb::dict to_dict(const DflashConfig& config) {
  nb::dict result;
  nb::list windows;
  nb::list causal;
  for (const DflashLayer& layer : config.layers) {
    windows.append(layer.window);
    causal.append(layer.causal);
  }
  result["hidden"] = config.hidden;
  result["intermediate"] = config.intermediate;
  result["vocab"] = config.vocab;
  result["eps"] = config.eps;
  result["windows"] = windows;
  result["causal"] = causal;
  result["n_heads"] = config.n_heads;
  result["n_kv_heads"] = config.n_kv_heads;
  result["head_dim"] = config.head_dim;
  result["rope_theta"] = config.rope_theta;
  result["block_size"] = config.block_size;
  result["mask_id"] = config.mask_id;
  result["embedding_scale"] = config.embedding_scale;
  result["taps"] = config.taps;
  return result;
}

nb::dict dflash_config(const std::string& path) {
  return to_dict(std::filesystem::is_directory(path) ? read_dflash_hf_config(path)
                                                     : read_dflash_gguf_config(read_gguf(path)));
}

nb::dict dflash_check(const std::string& path, const std::string& target) {
  const DflashWeights weights(path, Weights(target).config());
  nb::dict result;
  add_tensors(result, weights, tensor_specs(weights.config()));
  return result;
}

std::string fingerprint(const std::string& path, bool mtp, const std::string& dflash) {
  const Weights weights(path);
  if (dflash.empty()) return to_hex(fingerprint_of(weights, {.mtp = mtp, .dflash = nullptr}));
  const DflashWeights drafter(dflash, weights.config());
  return to_hex(fingerprint_of(weights, {.mtp = mtp, .dflash = &drafter}));
}

}  // namespace

void init_io_testing(nb::module_& testing) {
  testing.def("open_gguf", &open_gguf, "path"_a,
              "Directory of a GGUF file. Its metadata: _core.read_gguf_metadata.");
  testing.def("open_safetensors", &open_safetensors, "path"_a,
              "Directories of a safetensors file, or of all files of a checkpoint directory.");
  testing.def("model_config", &model_config, "path"_a, "The shapes of a model.");
  testing.def("weights_check", &weights_check, "path"_a,
              "All tensors of a pass, and of the prediction head if there is one: vectors as lists "
              "of float, matrices as their place.");
  testing.def("mtp_problem", &mtp_problem, "path"_a,
              "Why the prediction head does not run, or \"\".");
  testing.def("dflash_config", &dflash_config, "path"_a, "The shapes of a drafter.");
  testing.def("dflash_check", &dflash_check, "path"_a, "target"_a,
              "All tensors of a drafter, which must serve the target.");
  testing.def("fingerprint", &fingerprint, "path"_a, "mtp"_a = false, "dflash"_a = "",
              "Of a model, with drafters' contexts, in hexadecimal digits.");
}

}  // namespace mtlqwen
