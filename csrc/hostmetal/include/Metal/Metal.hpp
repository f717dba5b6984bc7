// The part of metal-cpp's Metal 4 that the runtime uses, implemented on the CPU. Same names, same signatures: the runtime
// above does not know which one it was compiled against.
#pragma once
#include "MTL4CommandEncoder.hpp"
#include "MTL4CommandQueue.hpp"
#include "MTL4Compiler.hpp"
#include "MTL4Counters.hpp"
#include "MTLDevice.hpp"
#include "MTLEvent.hpp"
#include "MTLLibrary.hpp"
#include "MTLResource.hpp"
#include "MTLTypes.hpp"
