// Each error class of base/error.hpp becomes the class of its name in mtlqwen.errors.
// std::invalid_argument is a ValueError and std::bad_alloc a MemoryError already: nanobind's own
// translation.
#include <exception>

#include "base/error.hpp"
#include "bind.hpp"

namespace mtlqwen {
namespace {

void raise(const char* class_name, const std::exception& error) {
  // Looked up when needed: the extension then holds no reference that outlives the interpreter.
  const nanobind::object type = nanobind::module_::import_("mtlqwen.errors").attr(class_name);
  PyErr_SetString(type.ptr(), error.what());
}

void translate(const std::exception_ptr& thrown, void* /*payload*/) {
  try {
    std::rethrow_exception(thrown);
  } catch (const FormatError& error) {
    raise("FormatError", error);
  } catch (const ModelError& error) {
    raise("ModelError", error);
  } catch (const CapacityError& error) {
    raise("CapacityError", error);
  } catch (const DeviceError& error) {
    raise("DeviceError", error);
  } catch (const Error& error) {
    raise("MtlqwenError", error);
  }
}

}  // namespace

void init_errors(nanobind::module_& /*module*/) {
  nanobind::register_exception_translator(translate);
}

}  // namespace mtlqwen
