// SPDX-License-Identifier: Apache-2.0
// DLPack is the exchange format of array libraries (https://dmlc.github.io/dlpack). This header declares conversions
// between Tensor and the structures of DLPack 1.x and of the version before 1.0. It is independent of Python;
// bindings/exchange_py.cpp and
// c_exchange_py.cpp handle Python's objects.
#pragma once
#include "cpp/core/tensor.h"
#include "third_party/dlpack/dlpack.h"

namespace minidnn::dlpack {

DLDevice device_of(Place);
Place place_of(DLDevice);  // place_of() throws DeviceError for an unsupported device type

// These functions export a tensor. The exported structure shares ownership of the memory until the consumer calls
// `deleter`.
DLManagedTensorVersioned* export_versioned(const Tensor&, bool copied);
// Exports the structure of DLPack before 1.0. It cannot mark a tensor as read-only, so callers must not pass read-only
// tensors.
DLManagedTensor* export_legacy(const Tensor&);

// Describes a tensor without ownership. The result points to the shape and the strides of `t`.
DLTensor view(const Tensor& t);

// Allocates a row-major tensor with the dtype, shape and device of a DLTensor, on the stream of the current handle.
// Throws the errors of import(). Error messages begin with `call`.
Tensor allocate_like(const DLTensor&, const char* call);

// import() takes ownership of the DLPack structure, and calls its deleter when the last Tensor that uses it is
// destroyed. If import() throws, the caller keeps ownership. It throws ShapeError, DTypeError or DeviceError for a null
// data pointer, a negative shape, an unknown dtype, or a pointer that its device cannot read.
Tensor import(DLManagedTensorVersioned*);
Tensor import(DLManagedTensor*);

}  // namespace minidnn::dlpack
