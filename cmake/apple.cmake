# Apple: metal-cpp and Apple's Metal compiler. Written from their documentation; it has never been executed on a Mac.
# Targets as on other machines: mtlqwen_metal, mtlqwen_kernels; MTLQWEN_KERNEL_LIBRARIES lists what is installed.
if(CMAKE_OSX_DEPLOYMENT_TARGET AND CMAKE_OSX_DEPLOYMENT_TARGET VERSION_LESS 26.0)
  message(FATAL_ERROR "Metal 4 needs macOS 26 (CMAKE_OSX_DEPLOYMENT_TARGET is ${CMAKE_OSX_DEPLOYMENT_TARGET})")
endif()

# MTLQWEN_METAL_CPP names an unpacked copy, for builds without network.
set(MTLQWEN_METAL_CPP "" CACHE PATH "directory of Apple's metal-cpp headers (macOS 26)")
if(NOT MTLQWEN_METAL_CPP)
  include(FetchContent)
  FetchContent_Declare(metal_cpp URL "https://developer.apple.com/metal/cpp/files/metal-cpp_26.zip"
                       DOWNLOAD_EXTRACT_TIMESTAMP FALSE)
  FetchContent_MakeAvailable(metal_cpp)
  set(MTLQWEN_METAL_CPP "${metal_cpp_SOURCE_DIR}")
endif()
add_library(mtlqwen_metal INTERFACE)
target_include_directories(mtlqwen_metal SYSTEM INTERFACE "${MTLQWEN_METAL_CPP}")
target_link_libraries(mtlqwen_metal INTERFACE "-framework Metal" "-framework Foundation"
                      "-framework QuartzCore")

# metal/*.metal -> .air -> kernels.metallib. Fast math off: results must not depend on the compiler's liberties.
file(GLOB kernel_sources CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/metal/*.metal")
file(GLOB kernel_headers CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/metal/*.h")
set(kernel_objects "")
foreach(source IN LISTS kernel_sources)
  cmake_path(GET source STEM name)
  set(object "${PROJECT_BINARY_DIR}/metal/${name}.air")
  add_custom_command(
    OUTPUT "${object}"
    COMMAND ${CMAKE_COMMAND} -E make_directory "${PROJECT_BINARY_DIR}/metal"
    COMMAND xcrun -sdk macosx metal -std=metal4.0 -fno-fast-math -Wall -Werror
            -I "${PROJECT_SOURCE_DIR}/metal" -c "${source}" -o "${object}"
    DEPENDS "${source}" ${kernel_headers}
    COMMENT "metal ${name}" VERBATIM)
  list(APPEND kernel_objects "${object}")
endforeach()
set(MTLQWEN_KERNEL_LIBRARIES "${PROJECT_BINARY_DIR}/metal/kernels.metallib")
add_custom_command(
  OUTPUT "${MTLQWEN_KERNEL_LIBRARIES}"
  COMMAND xcrun -sdk macosx metal ${kernel_objects} -o "${MTLQWEN_KERNEL_LIBRARIES}"
  DEPENDS ${kernel_objects}
  VERBATIM)
add_custom_target(mtlqwen_kernels ALL DEPENDS "${MTLQWEN_KERNEL_LIBRARIES}")
