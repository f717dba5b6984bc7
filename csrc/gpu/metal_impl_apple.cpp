// The one translation unit that holds metal-cpp's own definitions. Part of the build on Apple
// machines only: elsewhere csrc/hostmetal defines the classes.
#define NS_PRIVATE_IMPLEMENTATION
#define MTL_PRIVATE_IMPLEMENTATION
#include <Foundation/Foundation.hpp>
#include <Metal/Metal.hpp>
