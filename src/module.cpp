// The extension module mtlqwen._core: the engine, and in _testing what only the tests need.
#include "base/version.hpp"
#include "bind.hpp"

NB_MODULE(_core, module) {
  module.doc() = "Native engine of mtlqwen.";
  module.attr("__version__") = mtlqwen::kVersion;
  mtlqwen::init_errors(module);  // first: what follows may throw
  // At exit, daemon threads may still hold objects, and in a forked child the frames of threads that
  // are not there do: nothing to bother users with. Tests switch the warnings on.
  nanobind::set_leak_warnings(false);

  mtlqwen::init_engine(module);
  mtlqwen::init_files(module);
  nanobind::module_ testing =
      module.def_submodule("_testing", "Parts of the engine, for its tests. No public interface.");
  testing.def(
      "set_leak_warnings", [](bool on) { nanobind::set_leak_warnings(on); },
      "Say at exit which objects of this module are still alive.");
  mtlqwen::init_testing(testing);
  mtlqwen::init_scheduler_testing(testing);
  mtlqwen::init_draft_testing(testing);
  mtlqwen::init_io_testing(testing);
  mtlqwen::init_read_testing(testing);
}
