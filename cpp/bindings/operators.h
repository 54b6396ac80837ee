// SPDX-License-Identifier: Apache-2.0
// Functions that implement the operators of the Python type DeviceTensor, such as t + 1 and t[0].
#pragma once
#include "cpp/bindings/casters.h"

namespace minidnn {

// Returns the tensor in a Python object. Throws if the object is no DeviceTensor, or was made without __init__.
const Tensor& tensor_of(PyObject*);
// Returns null if the Python object is no DeviceTensor.
const Tensor* tensor_or_null(PyObject*);

// Returns f(). A C++ exception becomes the Python error that pybind11 would set, and the result is null or -1.
template <class F> auto with_python_errors(F&& f) noexcept -> decltype(f()) {
  try {
    return f();
  } catch (py::error_already_set& error) {
    error.restore();
  } catch (...) {
    py::detail::try_translate_exceptions();
  }
  if constexpr (std::is_pointer_v<decltype(f())>) return nullptr;
  else return -1;
}

inline PyObject* to_python(Tensor t) { return py::cast(std::move(t)).release().ptr(); }
inline py::object methods_module() { return py::module_::import("pyminidnn.methods"); }

// Store C functions in the type object of DeviceTensor, which Python calls for operators such as + and []. They are
// called before Python completes the type.
void set_operators(PyHeapTypeObject*);
void set_indexing(PyHeapTypeObject*);
void bind_operators(py::class_<Tensor>&);

}  // namespace minidnn
