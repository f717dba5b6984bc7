// The extension module mtlqwen._core: the engine, and in _testing what only the tests need.
#include <pthread.h>

#include "base/version.hpp"
#include "bind.hpp"

NB_MODULE(_core, module) {
  module.doc() = "Native engine of mtlqwen.";
  module.attr("__version__") = mtlqwen::kVersion;
  mtlqwen::init_errors(module);  // first: what follows may throw
  // The frames of threads that a forked child has not got keep their objects; that is no leak.
  pthread_atfork(nullptr, nullptr, [] { nanobind::set_leak_warnings(false); });

  mtlqwen::init_engine(module);
  nanobind::module_ testing =
      module.def_submodule("_testing", "Parts of the engine, for its tests. No public interface.");
  mtlqwen::init_testing(testing);
  mtlqwen::init_scheduler_testing(testing);
  mtlqwen::init_io_testing(testing);
}
