// SPDX-License-Identifier: Apache-2.0
// How Python's values become ours, once for all bind_F: dtypes, layouts, devices and streams by any spelling people
// use.
#pragma once
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>
#include <unistd.h>

#include <optional>
#include <span>
#include <type_traits>

#include "cpp/engine/op.h"
#include "cpp/engine/spatial.h"

namespace py = pybind11;

namespace minidnn {

// Releases the GIL for a scope. Taking it back in a daemon thread while the interpreter shuts down ends the thread by
// unwinding it, which pybind11's class turns into std::terminate; here it sleeps until the process is gone, as in
// Python 3.14 and later.
class ReleaseGil {
 public:
  ReleaseGil() : state_(PyEval_SaveThread()) {}
  ~ReleaseGil() {
    try {
      PyEval_RestoreThread(state_);
    } catch (...) {
      for (;;) pause();
    }
  }
  ReleaseGil(const ReleaseGil&) = delete;

 private:
  PyThreadState* state_;
};

DType dtype_from_python(py::handle);              // "float32", numpy.float32, dtype('float32'), torch.float32
std::optional<DType> optional_dtype(py::handle);  // None stays empty
std::optional<Layout> optional_layout(const std::optional<std::string>&, int64_t rank);
std::optional<Place> optional_place(const std::optional<std::string>&);
// An int, an object with __cuda_stream__, a torch or CuPy stream; None is the default stream. `call` opens the texts.
Stream stream_from_python(py::handle, Place, const char* call);
uintptr_t stream_number(Stream);  // as DLPack and __cuda_array_interface__ write it: 1 for default
py::tuple tuple_of(std::span<const int64_t>);

// An int or a sequence of them; padding also takes pairs (before, after). ShapeError for anything else.
std::vector<int64_t> integers_from_python(py::handle, const char* call, const char* name);
std::vector<Sides> sides_from_python(py::handle, const char* call, const char* name);

void bind_core(py::module_&);                           // errors, Handle, DeviceTensor, allocator
void bind_exchange(py::module_&, py::class_<Tensor>&);  // DLPack, __cuda_array_interface__, NumPy
void bind_engine(py::module_&);                         // find, explain, engines, kernels, log
void bind_runtime(py::module_&);                        // what this machine has: GPUs, NVRTC, caches

}  // namespace minidnn

namespace pybind11::detail {

// No handle is what nearly every call says. pybind11 would look for one behind None: a third of a small call's time.
template <> struct type_caster<minidnn::HandlePtr> : copyable_holder_caster<minidnn::Handle, minidnn::HandlePtr> {
  bool load(handle source, bool convert) { return source.is_none() || copyable_holder_caster::load(source, convert); }
};

// An integer beyond 64 bits is a value that will not do, not an argument of a wrong type.
template <> struct type_caster<int64_t> {
  PYBIND11_TYPE_CASTER(int64_t, const_name("int"));
  bool load(handle source, bool convert) {
    static_assert(!std::is_same_v<int64_t, long long>);
    type_caster<long long> plain;
    if (!plain.load(source, convert)) {
      if (!PyLong_Check(source.ptr())) return false;
      throw minidnn::ShapeError(minidnn::cat("an argument is an integer of ",
                                             source.attr("bit_length")().cast<long long>(),
                                             " bits; 63 is the most that fits"));
    }
    value = static_cast<long long>(plain);
    return true;
  }
  static handle cast(int64_t v, return_value_policy, handle) { return PyLong_FromLongLong(v); }
};

}  // namespace pybind11::detail
