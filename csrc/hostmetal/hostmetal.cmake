# mtlqwen_hostmetal: the software Metal 4 device, behind the headers of metal-cpp.
file(GLOB hostmetal_sources CONFIGURE_DEPENDS "${CMAKE_CURRENT_LIST_DIR}/*.cpp")
add_library(mtlqwen_hostmetal STATIC ${hostmetal_sources})
target_include_directories(mtlqwen_hostmetal PUBLIC "${CMAKE_CURRENT_LIST_DIR}/include"
                           PRIVATE "${CMAKE_CURRENT_LIST_DIR}/..")
# Methods may be called on null, as messages may be sent to nil: the compiler must not conclude that such a pointer is not
# null, nor the sanitizer stop there.
target_compile_options(mtlqwen_hostmetal PUBLIC -fno-delete-null-pointer-checks -fno-sanitize=null,vptr)
find_package(Threads REQUIRED)
target_link_libraries(mtlqwen_hostmetal PUBLIC Threads::Threads ${CMAKE_DL_LIBS})
