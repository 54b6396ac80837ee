// SPDX-License-Identifier: Apache-2.0
// How Python's values become ours, once for all bind_F: dtypes, layouts, devices and streams by any spelling people use.
#pragma once
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <optional>

#include "cpp/engine/op.h"
#include "cpp/engine/spatial.h"

namespace py = pybind11;

namespace minidnn {

DType dtype_from_python(py::handle);                          // "float32", numpy.float32, dtype('float32'), torch.float32
std::optional<DType> optional_dtype(py::handle);              // None stays empty
std::optional<Layout> optional_layout(const std::optional<std::string>&, int64_t rank);
std::optional<Place> optional_place(const std::optional<std::string>&);
Stream stream_from_python(py::handle, Place);                 // int, __cuda_stream__, torch or CuPy stream; None is default
uintptr_t stream_number(Stream);                              // as DLPack and __cuda_array_interface__ write it: 1 for default

// An int or a sequence of them; padding also takes pairs (before, after). ShapeError for anything else.
std::vector<int64_t> integers_from_python(py::handle, const char* call, const char* name);
std::vector<Sides> sides_from_python(py::handle, const char* call, const char* name);

void bind_core(py::module_&);      // errors, Handle, DeviceTensor, allocator
void bind_exchange(py::module_&, py::class_<Tensor>&);  // DLPack, __cuda_array_interface__, NumPy
void bind_engine(py::module_&);    // find, explain, engines, kernels, log
void bind_runtime(py::module_&);   // what this machine has: GPUs, NVRTC, caches

}  // namespace minidnn
