# mtlqwen_options: how every file of ours is compiled. No -march: what needs a CPU level asks for it file by file.
if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release)
endif()
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_CXX_VISIBILITY_PRESET hidden)
set(CMAKE_VISIBILITY_INLINES_HIDDEN ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)

add_library(mtlqwen_options INTERFACE)
target_compile_features(mtlqwen_options INTERFACE cxx_std_20)
target_compile_options(mtlqwen_options INTERFACE -Wall -Wextra -Wshadow -Wconversion
                       $<$<BOOL:${MTLQWEN_WERROR}>:-Werror>)

# Sanitizers reach every object of the build: a runtime that sees only some of them misses races and overflows.
if(MTLQWEN_SANITIZE)
  if(SKBUILD)
    message(FATAL_ERROR "MTLQWEN_SANITIZE is for the C++ tests: python would have to preload the sanitizer's runtime")
  endif()
  add_compile_options(-fsanitize=${MTLQWEN_SANITIZE} -fno-omit-frame-pointer -g1 -O1)
  add_link_options(-fsanitize=${MTLQWEN_SANITIZE})
  if(MTLQWEN_SANITIZE MATCHES "undefined")
    add_compile_options(-fno-sanitize-recover=undefined)
  endif()
endif()
