// SPDX-License-Identifier: Apache-2.0
// DLPack is the exchange format of array libraries (https://dmlc.github.io/dlpack). This header has the binary
// interface of DLPack 1.x and of the version before 1.0, and conversions to and from Tensor. It is independent of
// Python; bindings/exchange_py.cpp handles Python's capsules.
#pragma once
#include "cpp/core/tensor.h"

namespace minidnn::dlpack {

// The structures and constants of the DLPack specification.
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

// These functions export a tensor. The exported structure shares ownership of the memory until the consumer calls
// `deleter`.
ManagedVersioned* export_versioned(const Tensor&, bool copied);
// Exports the structure of DLPack before 1.0. It cannot mark a tensor as read-only, so callers must not pass read-only
// tensors.
Managed* export_legacy(const Tensor&);

// import() takes ownership of the DLPack structure, and calls its deleter when the last Tensor that uses it is
// destroyed. If import() throws, the caller keeps ownership. It throws ShapeError, DTypeError or DeviceError for a null
// data pointer, a negative shape, an unknown dtype, or a pointer that its device cannot read.
Tensor import(ManagedVersioned*);
Tensor import(Managed*);

}  // namespace minidnn::dlpack
