// One init function for each binding file; module.cpp calls them in this order.
#pragma once
#include <nanobind/nanobind.h>

#include "model/masks.hpp"

namespace mtlqwen {

struct ModelConfig;
[[nodiscard]] nanobind::dict to_dict(const ModelConfig& config);  // bind_files.cpp
// Errors that it returns become C++ ones; what it raises stays a Python error (bind_masks.cpp).
FillMasks to_fill_masks(nanobind::callable function);

void init_errors(nanobind::module_& module);    // bind_errors.cpp
void init_engine(nanobind::module_& module);    // bind_engine.cpp
void init_files(nanobind::module_& module);     // bind_files.cpp
void init_testing(nanobind::module_& testing);  // bind_testing.cpp, the submodule _testing
void init_scheduler_testing(nanobind::module_& testing);  // bind_scheduler_testing.cpp, the same
void init_draft_testing(nanobind::module_& testing);  // bind_draft_testing.cpp, the same submodule
void init_io_testing(nanobind::module_& testing);     // bind_io_testing.cpp, the same submodule
void init_read_testing(nanobind::module_& testing);   // bind_read_testing.cpp, the same

}  // namespace mtlqwen
