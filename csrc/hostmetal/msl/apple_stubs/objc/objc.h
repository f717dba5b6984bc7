// The few names of the Apple system headers that metal-cpp mentions: enough to check types, nothing to link against.
#pragma once
#include <cmath>
#include <cstddef>
#include <cstdint>

typedef struct objc_class* Class;
struct objc_object {  // a base class of metal-cpp's
  Class isa;
};
typedef objc_object* id;
typedef struct objc_selector* SEL;
typedef struct objc_protocol Protocol;
typedef void (*IMP)();
typedef signed char BOOL;
