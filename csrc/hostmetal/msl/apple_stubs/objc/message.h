#pragma once
#include "objc.h"

extern "C" {
void objc_msgSend();
void objc_msgSend_stret();
void objc_msgSend_fpret();
}
