// SPDX-License-Identifier: Apache-2.0
// A tensor: a description, a pointer, and shared ownership of its storage. Copies share memory, as NumPy views do.
#pragma once
#include "cpp/core/device/allocator.h"
#include "cpp/core/layout.h"

namespace minidnn {

struct Tensor {
  TensorDesc desc;
  // The address of the element at index (0, ..., 0). It is never lower than storage->data.
  void* data = nullptr;
  std::shared_ptr<Storage> storage;

  Place place() const { return storage->place; }
  int64_t nbytes() const { return desc.numel() * int64_t(itemsize(desc.dtype)); }
  std::string text() const { return cat(shape_text(desc), " ", name(desc.dtype)); }
};

// Creates a tensor of uninitialised memory, which is allocated in stream order. The text of OutOfMemory begins with
// `call` and `label`, such as "conv_forward" and "y". While this thread records a graph, the result is a stand-in
// (recording.h).
Tensor empty(const TensorDesc&, Place, Stream, const char* call, const char* label);

// Records that work on `stream` uses the tensor. Every public function calls use() for each tensor that its engine
// reads or writes.
void use(const Tensor&, Stream);

// Creates a tensor over existing memory that `owner` keeps alive. Sets the members data, bytes and place of `owner`.
// Throws ShapeError if the tensor has elements and the pointer is null or misaligned. Throws DeviceError if the device
// cannot read the pointer. The texts of these errors begin with `call`.
Tensor adopt(const TensorDesc&, void* data, Place, std::shared_ptr<Storage> owner, const char* call);

// Returns a view of the same memory with another shape. Throws ShapeError if no strides give such a view. The text of
// the error begins with `what`.
Tensor view_as(const Tensor&, std::span<const int64_t> shape, const char* what);
bool can_view_as(const TensorDesc&, std::span<const int64_t> shape, const char* what, TensorDesc* result);

// Whether the two tensors may share an element. The answer is exact for views of one array that have the strides of
// this array, such as two slices of channels. If the strides differ, the answer is true if the byte ranges overlap.
bool share_memory(const Tensor&, const Tensor&);
// The same for two descriptions with the addresses of their elements (0, ..., 0), which need not be mapped.
bool share_memory(const TensorDesc&, uintptr_t, const TensorDesc&, uintptr_t);

}  // namespace minidnn
