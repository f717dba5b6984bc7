# The extension module mtlqwen._core and the kernel libraries beside it. STABLE_ABI takes effect from Python 3.12 on.
find_package(Python 3.10 REQUIRED COMPONENTS Interpreter Development.Module ${SKBUILD_SABI_COMPONENT})
find_package(nanobind CONFIG REQUIRED)

file(GLOB extension_sources CONFIGURE_DEPENDS "src/*.cpp")
nanobind_add_module(_core STABLE_ABI NB_STATIC NB_SUPPRESS_WARNINGS ${extension_sources})
target_include_directories(_core PRIVATE src)
target_link_libraries(_core PRIVATE mtlqwen_core mtlqwen_options)
add_dependencies(_core mtlqwen_kernels)

install(TARGETS _core LIBRARY DESTINATION mtlqwen)
install(FILES ${MTLQWEN_KERNEL_LIBRARIES} DESTINATION mtlqwen)
