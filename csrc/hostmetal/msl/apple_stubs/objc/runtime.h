#pragma once
#include "objc.h"

extern "C" {
Class objc_lookUpClass(const char* name);
Class objc_getClass(const char* name);
Protocol* objc_getProtocol(const char* name);
SEL sel_registerName(const char* name);
}

struct objc_method_description {
  SEL name;
  char* types;
};
