// SPDX-License-Identifier: Apache-2.0
// DLPack, the exchange format of array libraries (https://dmlc.github.io/dlpack): the binary interface of versions 1.x
// and of the version before, and conversions to and from Tensor. This header is independent of Python;
// bindings/exchange_py.cpp handles Python's capsules.
#pragma once
#include "cpp/core/tensor.h"

namespace minidnn::dlpack {

// Structures and constants of the DLPack specification.
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
struct Managed {  // the DLPack structure of versions before 1.0
  DLTensor tensor;
  void* context;
  void (*deleter)(Managed*);
};
struct ManagedVersioned {  // the DLPack structure of versions 1.x
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
Place place_of(DLDevice);  // place_of() throws DeviceError for an unsupported device type

// Export the tensor. The exported structure shares ownership of the memory until the consumer calls `deleter`.
ManagedVersioned* export_versioned(const Tensor&, bool copied);
// This older structure cannot mark a tensor as read-only, so callers must not pass read-only tensors.
Managed* export_legacy(const Tensor&);

// import() takes ownership of the DLPack structure, and calls its deleter when the last Tensor that uses it is
// destroyed. On an error the caller keeps ownership. import() throws ShapeError, DTypeError or DeviceError for a null
// data pointer, a negative shape, an unknown dtype, or a pointer that its device cannot read.
Tensor import(ManagedVersioned*);
Tensor import(Managed*);

}  // namespace minidnn::dlpack
