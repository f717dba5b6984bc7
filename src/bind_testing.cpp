// _core._testing: single kernels and the engine's logits, for the tests.
#include <nanobind/ndarray.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/variant.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <cctype>
#include <cstring>

#include "bind.hpp"
#include "engine/engine.hpp"
#include "gpu/commands.hpp"
#include "gpu/foundation.hpp"
#include "model/linear_table.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace mtlqwen {
namespace {

using Array = nb::ndarray<nb::numpy, nb::c_contig, nb::device::cpu>;
using ConstantMap = std::map<uint32_t, std::variant<bool, int64_t, double>>;

Constant to_constant(uint32_t index, const std::variant<bool, int64_t, double>& value) {
  Constant constant{.index = index, .value = {}};
  if (const bool* flag = std::get_if<bool>(&value)) {
    constant.value = *flag;
  } else if (const int64_t* number = std::get_if<int64_t>(&value)) {
    constant.value = static_cast<uint32_t>(*number);
  } else {
    constant.value = static_cast<float>(std::get<double>(value));
  }
  return constant;
}

// One device and one open library; arrays are copied in, the kernel runs alone, and the arrays are
// copied back.
class KernelRunner {
 public:
  explicit KernelRunner(const std::string& kernels) : device_(kernels), commands_(device_) {}

  void run(const std::string& name, const ConstantMap& constants, std::vector<Array> arrays,
           std::tuple<uint32_t, uint32_t, uint32_t> groups, uint32_t threads,
           uint32_t threadgroup_bytes, uint32_t repeat) {
    Constants values;
    for (const auto& [index, value] : constants) values.push_back(to_constant(index, value));
    const Pipeline& pipeline = device_.pipelines().get(name, values);
    std::vector<Buffer> buffers;
    std::vector<uint64_t> addresses;
    for (const Array& array : arrays) {
      buffers.push_back(
          device_.new_buffer(std::max<uint64_t>(array.nbytes(), 1), Storage::kShared, "test"));
      std::memcpy(buffers.back().contents(), array.data(), array.nbytes());
      addresses.push_back(buffers.back().span().address);
    }
    const auto [x, y, z] = groups;
    const AutoreleaseScope scope;
    commands_.begin();
    for (uint32_t i = 0; i < repeat; ++i) {
      commands_.dispatch(
          pipeline, addresses,
          {.groups = {x, y, z}, .threads = threads, .threadgroup_bytes = threadgroup_bytes});
      commands_.barrier();
    }
    commands_.commit_and_wait();
    for (size_t i = 0; i < arrays.size(); ++i) {
      std::memcpy(arrays[i].data(), buffers[i].contents(), arrays[i].nbytes());
    }
  }
  [[nodiscard]] double gpu_seconds() const { return commands_.gpu_seconds(); }
  [[nodiscard]] std::vector<std::string> kernel_names() {
    return device_.pipelines().kernel_names();
  }

 private:
  Device device_;
  Commands commands_;
};

nb::dict to_dict(const LinearLaunch& launch) {
  nb::dict result;
  result["kernel"] = std::string(launch.kernel);
  result["rows_per_group"] = launch.rows_per_group;
  result["outputs_per_group"] = launch.outputs_per_group;
  result["threads"] = launch.threads;
  result["threadgroup_bytes"] = launch.threadgroup_bytes;
  result["int16"] = launch.int16;
  for (const Constant& constant : launch.constants()) {
    if (constant.index == kSimdgroupsConstant) {
      result["simdgroups"] = std::get<uint32_t>(constant.value);
    }
  }
  return result;
}

// As files spell it, but for the case.
Format to_format(const std::string& name) {
  const auto is_same = [](char a, char b) { return std::tolower(a) == std::tolower(b); };
  for (const FormatInfo& known : formats()) {
    if (std::ranges::equal(known.name, name, is_same)) return known.format;
  }
  throw std::invalid_argument("no such format: " + name);
}

// Names of the formats that share their kernels.
std::vector<std::string> packed_formats() {
  std::vector<std::string> names;
  for (const FormatInfo& format : formats()) {
    if (format.is_packed()) names.emplace_back(format.name);
  }
  return names;
}

// The launch table's choice for a weight format.
nb::dict choose(const std::string& format, uint32_t n, uint32_t k, uint32_t rows, bool software,
                bool deterministic, bool int16) {
  const LinearDevice device{.software = software, .deterministic = deterministic, .int16 = int16};
  return to_dict(choose_linear(to_format(format), n, k, rows, device));
}

// The same for the fused MLP; empty where there is none.
nb::dict choose_fused(const std::string& format, uint32_t n, uint32_t k, uint32_t rows,
                      bool software, bool int16) {
  const LinearDevice device{.software = software, .int16 = int16};
  const Format both = to_format(format);
  const LinearLaunch* launch = choose_mlp(both, both, n, k, rows, device);
  return launch ? to_dict(*launch) : nb::dict();
}

}  // namespace

void init_testing(nb::module_& testing) {
  nb::class_<KernelRunner>(testing, "KernelRunner")
      .def(nb::init<const std::string&>(), "kernels"_a)
      .def("run", &KernelRunner::run, nb::call_guard<nb::gil_scoped_release>(), "name"_a,
           "constants"_a, "buffers"_a, "groups"_a, "threads"_a, "threadgroup_bytes"_a = 0,
           "repeat"_a = 1)
      .def_prop_ro("gpu_seconds", &KernelRunner::gpu_seconds)
      .def_prop_ro("kernel_names", &KernelRunner::kernel_names);
  testing.def("choose_linear", &choose, "format"_a, "n"_a, "k"_a, "rows"_a, "software"_a,
              "deterministic"_a = false, "int16"_a = false);
  testing.def("packed_formats", &packed_formats);
  testing.def("choose_mlp", &choose_fused, "format"_a, "n"_a, "k"_a, "rows"_a, "software"_a,
              "int16"_a);
  testing.def("set_pass_rows", &Engine::set_pass_rows, nb::arg("engine"), nb::arg("rows"));
  testing.def("propose", &Engine::propose, nb::arg("engine"), nb::arg("sequence"),
              nb::arg("token_ids"));
  testing.def("force_width", &Engine::force_width, nb::arg("engine"),
              nb::arg("width") = nb::none());
  testing.def("last_draft", &Engine::last_draft, nb::arg("engine"), nb::arg("sequence"));
  testing.def("last_logits", &Engine::last_logits, nb::arg("engine"), nb::arg("sequence"));
}

}  // namespace mtlqwen
