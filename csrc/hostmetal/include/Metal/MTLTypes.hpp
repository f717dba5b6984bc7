// Plain values and enumerations of Metal. The numbers are Apple's.
#pragma once
#include <Foundation/Foundation.hpp>
#include <cstdint>

namespace MTL {

using GPUAddress = uint64_t;

struct Size {
  Size() = default;
  Size(NS::UInteger w, NS::UInteger h, NS::UInteger d) : width(w), height(h), depth(d) {}
  static Size Make(NS::UInteger w, NS::UInteger h, NS::UInteger d) { return Size(w, h, d); }

  NS::UInteger width;
  NS::UInteger height;
  NS::UInteger depth;
} __attribute__((packed));

enum StorageMode : NS::UInteger {
  StorageModeShared = 0,
  StorageModePrivate = 2,
};

enum HazardTrackingMode : NS::UInteger {
  HazardTrackingModeDefault = 0,
  HazardTrackingModeUntracked = 1,
  HazardTrackingModeTracked = 2,
};

using ResourceOptions = NS::UInteger;
enum : ResourceOptions {
  ResourceStorageModeShared = 0,
  ResourceStorageModePrivate = 1 << 5,
  ResourceHazardTrackingModeDefault = 0,
  ResourceHazardTrackingModeUntracked = 1 << 8,
  ResourceHazardTrackingModeTracked = 1 << 9,
};

enum HeapType : NS::Integer {
  HeapTypeAutomatic = 0,
  HeapTypePlacement = 1,
  HeapTypeSparse = 2,
};

enum SparsePageSize : NS::Integer {
  SparsePageSize16 = 101,
  SparsePageSize64 = 102,
  SparsePageSize256 = 103,
};

enum SparseTextureMappingMode : NS::UInteger {
  SparseTextureMappingModeMap = 0,
  SparseTextureMappingModeUnmap = 1,
};

using Stages = NS::UInteger;
enum : Stages {
  StageResourceState = 1 << 26,
  StageDispatch = 1 << 27,
  StageBlit = 1 << 28,
  StageAll = 9223372036854775807,
};

enum GPUFamily : NS::Integer {
  GPUFamilyApple1 = 1001,
  GPUFamilyApple2 = 1002,
  GPUFamilyApple3 = 1003,
  GPUFamilyApple4 = 1004,
  GPUFamilyApple5 = 1005,
  GPUFamilyApple6 = 1006,
  GPUFamilyApple7 = 1007,
  GPUFamilyApple8 = 1008,
  GPUFamilyApple9 = 1009,
  GPUFamilyApple10 = 1010,
  GPUFamilyMac2 = 2002,
  GPUFamilyCommon1 = 3001,
  GPUFamilyCommon2 = 3002,
  GPUFamilyCommon3 = 3003,
  GPUFamilyMetal3 = 5001,
  GPUFamilyMetal4 = 5002,
};

enum DataType : NS::UInteger {
  DataTypeFloat = 3,
  DataTypeHalf = 16,
  DataTypeInt = 29,
  DataTypeUInt = 33,
  DataTypeShort = 37,
  DataTypeUShort = 41,
  DataTypeChar = 45,
  DataTypeUChar = 49,
  DataTypeBool = 53,
  DataTypeLong = 81,
  DataTypeULong = 85,
  DataTypeBFloat = 121,
};

enum LibraryError : NS::UInteger {
  LibraryErrorUnsupported = 1,
  LibraryErrorInternal = 2,
  LibraryErrorCompileFailure = 3,
  LibraryErrorCompileWarning = 4,
  LibraryErrorFunctionNotFound = 5,
  LibraryErrorFileNotFound = 6,
};

}  // namespace MTL

namespace MTL4 {

using VisibilityOptions = NS::UInteger;
enum : VisibilityOptions {
  VisibilityOptionNone = 0,
  VisibilityOptionDevice = 1,
  VisibilityOptionResourceAlias = 1 << 1,
};

enum CommandQueueError : NS::Integer {
  CommandQueueErrorNone = 0,
  CommandQueueErrorTimeout = 1,
  CommandQueueErrorNotPermitted = 2,
  CommandQueueErrorOutOfMemory = 3,
  CommandQueueErrorDeviceRemoved = 4,
  CommandQueueErrorAccessRevoked = 5,
  CommandQueueErrorInternal = 6,
};

// Ranges and offsets count tiles of the buffer's page size.
struct UpdateSparseBufferMappingOperation {
  MTL::SparseTextureMappingMode mode;
  NS::Range bufferRange;
  NS::UInteger heapOffset;
} __attribute__((packed));

}  // namespace MTL4
