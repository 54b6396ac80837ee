// SPDX-License-Identifier: Apache-2.0
// Rewords the errors of all bound functions for Python users. If an argument has a wrong type, pybind11 only lists
// signatures. If several functions share C++ code, its errors do not name the called function. Therefore, Python calls
// explain_call() for every bound function, and explain_call() calls pybind11's dispatcher. If the dispatcher fails,
// pyminidnn/refusals.py words the error for the public function and its argument. A successful call costs one
// additional jump.
#include "cpp/bindings/casters.h"

namespace minidnn {
namespace {

using Function = PyObject* (*)(PyObject* self, PyObject* const* arguments, Py_ssize_t count, PyObject* names);
Function dispatcher;  // pybind11's dispatcher, which is the same for all bound functions

void explain(PyObject* self, PyObject* const* arguments, Py_ssize_t count, PyObject* names) {
  py::error_already_set error;  // takes the current error from the Python interpreter
  // An error with a traceback was raised by Python code that the function called. Such an error is not reworded.
  if (error.trace()) return error.restore();
  try {
    const auto* record = py::detail::function_record_ptr_from_PyObject(self);
    py::tuple positional(count);
    for (Py_ssize_t i = 0; i < count; ++i) positional[size_t(i)] = py::handle(arguments[i]);
    py::dict keywords;
    for (Py_ssize_t i = 0; names && i < PyTuple_GET_SIZE(names); ++i)
      keywords[py::handle(PyTuple_GET_ITEM(names, i))] = py::handle(arguments[count + i]);
    py::object explained = py::module_::import("pyminidnn.refusals")
                               .attr("explained")(error.value(), record->name, record->signature, positional, keywords);
    if (explained.is(error.value())) error.restore();
    else PyErr_SetObject(py::type::handle_of(explained).ptr(), explained.ptr());
  } catch (const py::error_already_set&) {  // pyminidnn.refusals cannot be imported while the interpreter shuts down
    error.restore();
  }
}

PyObject* explain_call(PyObject* self, PyObject* const* arguments, Py_ssize_t count, PyObject* names) {
  PyObject* result = dispatcher(self, arguments, count, names);
  if (!result) [[unlikely]]
    explain(self, arguments, count, names);
  return result;
}

void explain_all(const py::dict& members) {
  for (auto [name, member] : members) {
    PyObject* f = member.ptr();
    if (PyInstanceMethod_Check(f)) f = PyInstanceMethod_GET_FUNCTION(f);
    if (!PyCFunction_Check(f) || !py::detail::function_record_ptr_from_PyObject(PyCFunction_GET_SELF(f))) continue;
    PyMethodDef* definition = reinterpret_cast<PyCFunctionObject*>(f)->m_ml;
    MINIDNN_CHECK(Error, definition->ml_flags == (METH_FASTCALL | METH_KEYWORDS),
                  "this version of pybind11 calls functions differently from 3.1; build pyminidnn with pybind11 3.1");
    if (!dispatcher) dispatcher = reinterpret_cast<Function>(reinterpret_cast<void (*)()>(definition->ml_meth));
    definition->ml_meth = reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(&explain_call));
  }
}

}  // namespace

void explain_refusals(py::module_& m) {
  explain_all(m.attr("__dict__"));
  explain_all(m.attr("DeviceTensor").attr("__dict__").attr("copy")());
  explain_all(m.attr("Handle").attr("__dict__").attr("copy")());
}

}  // namespace minidnn
