// SPDX-License-Identifier: Apache-2.0
// DLPack, the exchange format of array libraries (https://dmlc.github.io/dlpack): its binary interface, versions 1.x
// and the one before, and conversions to and from Tensor. Independent of Python; capsules are in
// bindings/exchange_py.cpp.
#pragma once
#include "cpp/core/tensor.h"

namespace minidnn::dlpack {

// The structures and names of the specification.
struct Version {
  uint32_t major, minor;
};
struct DataType {
  uint8_t code, bits;
  uint16_t lanes;
};
struct DLDevice {
  int32_t type, id;
};
struct DLTensor {
  void* data;
  DLDevice device;
  int32_t ndim;
  DataType dtype;
  int64_t* shape;
  int64_t* strides;
  uint64_t byte_offset;
};
struct Managed {  // before 1.0
  DLTensor tensor;
  void* context;
  void (*deleter)(Managed*);
};
struct ManagedVersioned {  // 1.x
  Version version;
  void* context;
  void (*deleter)(ManagedVersioned*);
  uint64_t flags;
  DLTensor tensor;
};
constexpr Version kVersion{1, 0};
constexpr uint64_t kReadOnly = 1, kCopied = 2;
constexpr int32_t kCpu = 1, kCuda = 2, kCudaHost = 3, kCudaManaged = 13;

DLDevice device_of(Place);
Place place_of(DLDevice);  // DeviceError for a device type that this library does not support

// Exports a share in the tensor. The consumer releases it through `deleter`.
ManagedVersioned* export_versioned(const Tensor&, bool copied);
Managed* export_legacy(const Tensor&);  // cannot mark a tensor as read-only: callers must not pass read-only tensors

// Takes ownership of the argument: its deleter runs when the last Tensor that uses it is destroyed. On an error the
// caller keeps ownership. ShapeError, DTypeError or DeviceError for a null data pointer, a negative shape, an unknown
// dtype, or a pointer that its device cannot read.
Tensor import(ManagedVersioned*);
Tensor import(Managed*);

}  // namespace minidnn::dlpack
