# The kernel libraries of machines without an Apple GPU: target mtlqwen_kernels builds every metal/*.metal for each CPU level.
# Sets MTLQWEN_KERNEL_LIBRARIES, the shared objects to install beside _core.
#
# The script itself knows what is out of date, so that a new kernel file or header needs no new CMake run.

find_package(Python REQUIRED COMPONENTS Interpreter)

set(MTLQWEN_KERNEL_DIR "${CMAKE_CURRENT_BINARY_DIR}/kernels" CACHE PATH
    "where the kernel libraries are built; builds that differ in nothing else of theirs may share them")
if(CMAKE_SYSTEM_PROCESSOR MATCHES "aarch64|arm64")
  set(_mtlqwen_isas neon)
else()
  set(_mtlqwen_isas avx2 avx512)
endif()

set(MTLQWEN_KERNEL_LIBRARIES)
set(_mtlqwen_isa_options)
foreach(isa IN LISTS _mtlqwen_isas)
  list(APPEND MTLQWEN_KERNEL_LIBRARIES ${MTLQWEN_KERNEL_DIR}/kernels.${isa}.so)
  list(APPEND _mtlqwen_isa_options --isa ${isa})
endforeach()

add_custom_target(
  mtlqwen_kernels ALL
  COMMAND ${Python_EXECUTABLE} ${CMAKE_CURRENT_LIST_DIR}/build_kernels.py
          --output ${MTLQWEN_KERNEL_DIR} --metal-dir ${PROJECT_SOURCE_DIR}/metal
          ${_mtlqwen_isa_options}
  BYPRODUCTS ${MTLQWEN_KERNEL_LIBRARIES}
  COMMENT "Compiling metal/*.metal for the CPU"
  VERBATIM)
