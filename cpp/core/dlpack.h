// SPDX-License-Identifier: Apache-2.0
// DLPack, the exchange format of array libraries (https://dmlc.github.io/dlpack): its binary interface, versions 1.x
// and the one before, and the way between it and Tensor. Knows no Python; capsules are in bindings/dlpack_py.cpp.
#pragma once
#include "cpp/core/tensor.h"

namespace minidnn::dlpack {

// The structures as the specification lays them out; names follow it.
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
Place place_of(DLDevice);  // DeviceError for one this library does not know

// A share in the tensor, for the taker to drop through `deleter`.
ManagedVersioned* export_versioned(const Tensor&, bool copied);
Managed* export_legacy(const Tensor&);  // cannot say read-only: the caller keeps such tensors away

// Takes `managed` over: its deleter runs when the last Tensor lets go. On an error it is left with the caller.
// A null data pointer, a negative shape, an unknown dtype, a pointer its device cannot read: ShapeError, DTypeError,
// DeviceError with what was found.
Tensor import(ManagedVersioned*);
Tensor import(Managed*);

}  // namespace minidnn::dlpack
