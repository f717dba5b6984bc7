// The part of metal-cpp's Foundation that the runtime uses, implemented in plain C++.
#pragma once
#include "NSArray.hpp"
#include "NSAutoreleasePool.hpp"
#include "NSData.hpp"
#include "NSError.hpp"
#include "NSObject.hpp"
#include "NSRange.hpp"
#include "NSSharedPtr.hpp"
#include "NSString.hpp"
#include "NSTypes.hpp"
#include "NSURL.hpp"
