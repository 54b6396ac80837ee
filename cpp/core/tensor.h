// SPDX-License-Identifier: Apache-2.0
// A tensor: a description, a pointer, and shared ownership of its storage. Copies share memory, as NumPy views do.
#pragma once
#include "cpp/core/allocator.h"
#include "cpp/core/layout.h"

namespace minidnn {

struct Tensor {
  TensorDesc desc;
  void* data = nullptr;  // the element at index 0, ..., 0; never before storage->data
  std::shared_ptr<Storage> storage;

  Place place() const { return storage->place; }
  int64_t nbytes() const { return desc.numel() * int64_t(itemsize(desc.dtype)); }
  std::string text() const { return cat(shape_text(desc), " ", name(desc.dtype)); }
};

// A tensor of uninitialised memory, allocated in stream order. `call` and `label` ("conv_forward", "y") open the text
// of OutOfMemory.
Tensor empty(const TensorDesc&, Place, Stream, const char* call, const char* label);

// A tensor over memory that `owner` keeps alive; fills in owner's data, bytes and place. ShapeError if there are
// elements and the pointer is null or misaligned, DeviceError if the place cannot read it; `call` opens their texts.
Tensor adopt(const TensorDesc&, void* data, Place, std::shared_ptr<Storage> owner, const char* call);

// The same memory with another shape. ShapeError if strides cannot express it. Its text begins with `what`.
Tensor view_as(const Tensor&, std::span<const int64_t> shape, const char* what);
bool can_view_as(const TensorDesc&, std::span<const int64_t> shape, const char* what, TensorDesc* result);

// Whether an element of one may overlap an element of the other. Exact for views of one array with its strides, such as
// two slices of channels. If strides differ, true as soon as the byte ranges overlap.
bool share_memory(const Tensor&, const Tensor&);

}  // namespace minidnn
