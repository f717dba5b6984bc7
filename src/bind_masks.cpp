// A Python function as what fills masks: called by the thread inside step(), which holds no GIL.
#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>

#include <stdexcept>
#include <string>
#include <utility>

#include "base/error.hpp"
#include "bind.hpp"

namespace nb = nanobind;

namespace mtlqwen {
namespace {

nb::list listed(std::span<const int32_t> ids) {
  nb::list list;
  for (const int32_t id : ids) list.append(id);
  return list;
}

nb::list to_python(std::span<const MaskItem> items) {
  nb::list list;
  for (const auto& [text, drafted, first_row] : items) {
    list.append(
        nb::make_tuple(text.key, text.n_heard, listed(text.fresh), listed(drafted), first_row));
  }
  return list;
}

// Good for the call alone: the memory is the engine's.
nb::object to_python(const MaskTable& masks) {
  const nb::ndarray<nb::numpy, uint32_t, nb::ndim<2>, nb::c_contig> array(
      masks.words, {masks.rows, masks.row_words});
  return nb::cast(array, nb::rv_policy::reference);
}

// Kept as a C++ error, so that it can be raised again and needs no GIL to go.
std::exception_ptr to_error(nb::handle error) {
  if (error.is_none()) return nullptr;
  const std::string text = nb::cast<std::string>(nb::str(error));
  if (nb::isinstance(error, nb::module_::import_("mtlqwen.errors").attr("CapacityError")))
    return std::make_exception_ptr(CapacityError(text));
  if (nb::isinstance(error, nb::handle(PyExc_ValueError)))
    return std::make_exception_ptr(std::invalid_argument(text));
  return std::make_exception_ptr(std::runtime_error(text));
}

}  // namespace

FillMasks to_fill_masks(nb::callable function) {
  return [function = std::move(function)](std::span<const MaskItem> items, const MaskTable& masks) {
    const nb::gil_scoped_acquire gil;
    std::vector<std::exception_ptr> errors;
    const nb::object said = function(to_python(items), to_python(masks));
    for (const nb::handle error : said) errors.push_back(to_error(error));
    return errors;
  };
}

}  // namespace mtlqwen
