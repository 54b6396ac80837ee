// SPDX-License-Identifier: Apache-2.0
// A tensor: a description, a pointer, and a share in the storage behind it. Copies share memory, as NumPy views do.
#pragma once
#include "cpp/core/allocator.h"
#include "cpp/core/layout.h"

namespace minidnn {

struct Tensor {
  TensorDesc desc;
  void* data = nullptr;  // the element at index 0, ..., 0; inside storage->data, never before it
  std::shared_ptr<Storage> storage;

  Place place() const { return storage->place; }
  int64_t nbytes() const { return desc.numel() * int64_t(itemsize(desc.dtype)); }
  std::string text() const { return cat(shape_text(desc), " ", name(desc.dtype)); }
};

// Uninitialised memory in stream order. `call` and `label` ("conv_forward", "y") open the OutOfMemory text.
Tensor empty(const TensorDesc&, Place, Stream, const char* call, const char* label);

// A tensor over memory that is not ours, for as long as `owner` lives; fills in owner's place and bytes. `call` opens
// the texts: ShapeError for a null or misaligned pointer to elements, DeviceError for one that the place cannot read.
Tensor adopt(const TensorDesc&, void* data, Place, std::shared_ptr<Storage> owner, const char* call);

// The same memory seen through another shape; throws ShapeError when strides cannot express it (`what` opens the text).
Tensor view_as(const Tensor&, std::span<const int64_t> shape, const char* what);
bool can_view_as(const TensorDesc&, std::span<const int64_t> shape, const char* what, TensorDesc* result);

// Whether an element of one may lie on an element of the other. Exact for views of one array with its strides, such as
// two slices of channels; where strides differ, true as soon as their byte ranges meet.
bool share_memory(const Tensor&, const Tensor&);

}  // namespace minidnn
