// What _core tells of files and of the machine without an engine.
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <filesystem>
#include <string>
#include <string_view>
#include <type_traits>
#include <variant>
#include <vector>

#include "base/error.hpp"
#include "bind.hpp"
#include "gpu/device.hpp"
#include "io/gguf.hpp"
#include "io/safetensors.hpp"
#include "model/dflash_weights.hpp"
#include "model/layer_walk.hpp"
#include "model/weights.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace mtlqwen {
namespace {

nb::object to_python(const GgufArray& array);

template <class Item>
nb::object item_to_python(const Item& item) {
  return nb::cast(item);
}
nb::object item_to_python(const GgufArray& item) { return to_python(item); }

nb::object to_python(const GgufArray& array) {
  return std::visit(
      [](const auto& items) -> nb::object {
        nb::list list;
        for (const auto& item : items) list.append(item_to_python(item));
        return list;
      },
      array.items);
}

nb::object to_python(const GgufValue& value) {
  if (const GgufArray* array = value.array()) return to_python(*array);
  return std::visit(
      [](const auto& held) -> nb::object {
        using Held = std::decay_t<decltype(held)>;
        if constexpr (std::is_same_v<Held, std::vector<GgufArray>>) {
          return nb::none();  // an array: handled above
        } else {
          return nb::cast(held);
        }
      },
      value.data);
}

nb::dict gguf_metadata(const std::string& path) {
  const GgufFile file = read_gguf(path);
  nb::dict result;
  for (const auto& [key, value] : file.metadata.values()) result[key.c_str()] = to_python(value);
  return result;
}

void add_tensor(nb::list& out, const WeightFile& file, const std::string& name,
                std::string_view format, const std::vector<uint64_t>& shape, uint64_t bytes,
                bool runs) {
  nb::dict entry;
  entry["name"] = name;
  entry["file"] = file.file.path().filename().string();
  entry["format"] = std::string(format);
  entry["runs"] = runs;
  entry["shape"] = shape;
  entry["bytes"] = bytes;
  out.append(entry);
}

void add_tensors(nb::list& out, const WeightFile& file) {
  for (const auto& [name, tensor] : file.tensors) {
    add_tensor(out, file, name, info(tensor.format).name, tensor.shape, tensor.bytes, true);
  }
  for (const auto& [name, tensor] : file.unsupported) {
    add_tensor(out, file, name, tensor.format, tensor.shape, tensor.bytes, false);
  }
}

nb::list tensors(const std::string& path) {
  nb::list out;
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored)) {
    for (const WeightFile& file : read_safetensors_directory(path)) add_tensors(out, file);
  } else if (path.ends_with(".safetensors")) {
    add_tensors(out, read_safetensors(path));
  } else {
    const GgufFile file = read_gguf(path);
    add_tensors(out, file.weights);
    for (const WeightFile& part : file.more) add_tensors(out, part);
  }
  return out;
}

nb::dict config(const std::string& path) {
  const Weights weights(path);
  const ModelConfig& config = weights.config();
  const uint64_t layers = config.n_layers(LayerKind::kAttention);
  nb::dict result = to_dict(config);
  result["token_bytes"] = 2 * layers * kv_bytes(config);
  result["state_bytes"] = 2 * sizeof(float) * gdn_bank_floats(config);
  result["mtp_problem"] = weights.mtp_problem();
  return result;
}

std::string drafter_problem(const std::string& model, const std::string& drafter) {
  const Weights weights(model);
  try {
    static_cast<void>(DflashWeights(drafter, weights.config()));
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

}  // namespace

nb::dict to_dict(const ModelConfig& config) {
  nb::dict result;
  nb::list layers;
  for (const LayerKind kind : config.layers) {
    layers.append(kind == LayerKind::kAttention ? "attention" : "gdn");
  }
  result["architecture"] = config.architecture;
  result["hidden"] = config.hidden;
  result["intermediate"] = config.intermediate;
  result["vocab"] = config.vocab;
  result["n_valid_tokens"] = config.n_valid_tokens;
  result["max_context"] = config.max_context;
  result["tied"] = config.tied;
  result["eps"] = config.eps;
  result["layers"] = layers;
  result["n_heads"] = config.n_heads;
  result["n_kv_heads"] = config.n_kv_heads;
  result["head_dim"] = config.head_dim;
  result["rotary_dim"] = config.rotary_dim;
  result["rope_theta"] = config.rope_theta;
  result["gdn_k_heads"] = config.gdn_k_heads;
  result["gdn_v_heads"] = config.gdn_v_heads;
  result["gdn_head_dim"] = config.gdn_head_dim;
  result["k_head_tiled"] = config.k_head_tiled;
  result["mtp_layers"] = config.mtp_layers;
  result["eos_ids"] = config.eos_ids;
  return result;
}

void init_files(nb::module_& module) {
  module.def("read_gguf_metadata", &gguf_metadata, "path"_a,
             nb::sig("def read_gguf_metadata(path: str) -> dict[str, object]"),
             "All metadata of a GGUF file. Raises FormatError.");
  module.def(
      "read_tensors", &tensors, "path"_a,
      nb::sig("def read_tensors(path: str) -> list[dict[str, object]]"),
      "name, file, format, runs, shape and bytes of all tensors of a GGUF file, a safetensors "
      "file or a directory of those. Raises FormatError.");
  module.def(
      "read_config", &config, "path"_a, nb::sig("def read_config(path: str) -> dict[str, object]"),
      "The shapes of a model that runs, bytes of keys and values of a token (token_bytes) and "
      "of states of a sequence (state_bytes), and why its prediction head does not run "
      "(mtp_problem). Raises FormatError, ModelError.");
  module.def("drafter_problem", &drafter_problem, "model"_a, "drafter"_a,
             "Why a drafter does not run with a model; empty where it does.");
  module.def("recommended_bytes", &recommended_bytes,
             "What an engine may own where no memory_budget is given.");
}

}  // namespace mtlqwen
