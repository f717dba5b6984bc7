// What _core tells of files and of the machine without an engine.
#include <nanobind/stl/string.h>

#include <string>
#include <type_traits>
#include <variant>
#include <vector>

#include "bind.hpp"
#include "gpu/device.hpp"
#include "io/gguf.hpp"

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

}  // namespace

void init_files(nb::module_& module) {
  module.def("read_gguf_metadata", &gguf_metadata, "path"_a,
             nb::sig("def read_gguf_metadata(path: str) -> dict[str, object]"),
             "All metadata of a GGUF file. Raises FormatError.");
  module.def("recommended_bytes", &recommended_bytes,
             "What an engine may own where no memory_budget is given.");
}

}  // namespace mtlqwen
