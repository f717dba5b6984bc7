# Each tests/cpp/*.cpp is a program: exit status 0 is a pass. Its first argument is the kernel library, as Device takes it.
enable_testing()
list(GET MTLQWEN_KERNEL_LIBRARIES 0 kernel_library)
cmake_path(GET kernel_library PARENT_PATH kernel_directory)

add_custom_target(cpp_tests)
file(GLOB test_sources CONFIGURE_DEPENDS "tests/cpp/*.cpp")
foreach(source IN LISTS test_sources)
  cmake_path(GET source STEM name)
  add_executable(cpp_${name} ${source})
  target_include_directories(cpp_${name} PRIVATE tests/cpp)
  target_link_libraries(cpp_${name} PRIVATE mtlqwen_core mtlqwen_options)
  add_dependencies(cpp_${name} mtlqwen_kernels)
  add_dependencies(cpp_tests cpp_${name})
  add_test(NAME cpp.${name} COMMAND cpp_${name} "${kernel_directory}/kernels.metallib"
           WORKING_DIRECTORY "${PROJECT_SOURCE_DIR}")
  set_tests_properties(cpp.${name} PROPERTIES TIMEOUT 300)
endforeach()
set_tests_properties(cpp.fuzz_readers PROPERTIES TIMEOUT 3000)  # for the long mode
